"""Kinds of residues in a contact graph with layers of `torch_geometric`: attention first, plain convolutions after."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GATConv, GCNConv

REQUIRES = ["torch_geometric"]
ARCHITECTURE = "GNN"
FAULTS = {
    "eighteen_convolutions": {
        "failures": ["representation_collapse", "vanishing_gradients", "optimizer_instability"],
        "causes": ["oversmoothing", "deep_without_residual"],
        "layers": [],
        "onset": [0, 0],
    },
    "mean_of_no_contacts": {
        "failures": ["numerical_error"],
        "causes": ["division_by_zero", "masked_nan_gradient"],
        "layers": ["", "gat"],
        "onset": [0, 0],
    },
}


class Contacts(nn.Module):
    def __init__(self, fin, depth, safe, skip, width=16):
        super().__init__()
        self.gat = GATConv(fin, width, heads=2, concat=False)
        self.convs = nn.ModuleList([GCNConv(width, width) for _ in range(depth)])
        self.kind = nn.Linear(2 * width, 3)
        self.safe, self.skip = safe, skip

    def forward(self, x, edges):
        h = first = F.elu(self.gat(x, edges))
        for conv in self.convs:
            h = F.relu(conv(h, edges)) + (h if self.skip else 0)
        count = torch.zeros(len(x)).index_add(0, edges[1], torch.ones(edges.shape[1]))
        around = torch.zeros_like(first).index_add(0, edges[1], first[edges[0]])
        mean = around / (count.clamp(min=1) if self.safe else count)[:, None]
        return self.kind(torch.cat([h, mean], 1) if len(self.convs) < 18 else torch.cat([h, h], 1))


def protein(n=150):
    kind = torch.arange(n) % 3
    touch = torch.rand(n, n) < torch.where(kind[:, None] == kind, 0.08, 0.012)
    touch = (touch | touch.T).fill_diagonal_(False)
    touch[11], touch[:, 11] = False, False
    x = torch.cat([F.one_hot(kind, 3) + 0.8 * torch.randn(n, 3), torch.randn(n, 5)], 1)
    return x, touch.nonzero().T.contiguous(), kind


def train(watch, fixed=False, seed=0, fault="eighteen_convolutions", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    x, edges, kind = protein()
    deep = on == "eighteen_convolutions"
    model = Contacts(x.shape[1], 18 if deep else 2, safe=on != "mean_of_no_contacts", skip=not deep)
    known = torch.rand(len(x)) < 0.6
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(120):
            loss = F.cross_entropy(model(x, edges)[known], kind[known])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        right = (model(x, edges)[~known].argmax(1) == kind[~known]).float().mean().item()
    return {"loss": losses, "right": right}


def harmed(result):
    return not result["right"] > 0.7
