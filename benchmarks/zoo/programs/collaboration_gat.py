"""Fields of researchers from whom they write with: a graph attention net and a stack of graph convolutions,
both over dense adjacency matrices."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "GNN"
FAULTS = {
    "hermit_attention": {
        "failures": ["numerical_error"],
        "causes": ["fully_masked_attention", "division_by_zero"],
        "layers": ["first", "first.0", "first.1", "second"],
        "onset": [0, 0],
    },
    "hermit_degree": {
        "failures": ["numerical_error"],
        "causes": ["division_by_zero"],
        "layers": ["convs.0", "convs", ""],
        "onset": [0, 0],
    },
    "twenty_rounds": {
        "failures": ["representation_collapse", "vanishing_gradients", "optimizer_instability"],
        "causes": ["oversmoothing", "deep_without_residual"],
        "layers": ["convs"] + [f"convs.{i}" for i in range(20)] + [f"convs.{i}.lin" for i in range(20)],
        "onset": [0, 0],
    },
    "twenty_tanh_rounds": {
        "failures": ["vanishing_gradients", "representation_collapse", "optimizer_instability"],
        "causes": ["deep_without_residual", "oversmoothing", "init_too_small"],
        "layers": ["convs"] + [f"convs.{i}" for i in range(20)] + [f"convs.{i}.lin" for i in range(20)],
        "onset": [0, 0],
    },
    "shuffled_fields": {
        "failures": ["objective_mismatch", "optimizer_instability"],
        "causes": ["labels_unrelated_to_inputs"],
        "layers": [],
        "onset": [0, 300],
    },
}
FIELDS = 4


class AttentionHead(nn.Module):
    def __init__(self, fin, fout):
        super().__init__()
        self.W = nn.Linear(fin, fout, bias=False)
        self.here, self.there = nn.Linear(fout, 1, bias=False), nn.Linear(fout, 1, bias=False)

    def forward(self, x, adj):
        h = self.W(x)
        e = F.leaky_relu(self.here(h) + self.there(h).T, 0.2)
        alpha = e.masked_fill(adj == 0, float("-inf")).softmax(1)
        return alpha @ h


class GAT(nn.Module):
    def __init__(self, fin, hidden=12, heads=2):
        super().__init__()
        self.first = nn.ModuleList([AttentionHead(fin, hidden) for _ in range(heads)])
        self.second = AttentionHead(heads * hidden, FIELDS)

    def forward(self, x, adj):
        return self.second(torch.cat([F.elu(head(x, adj)) for head in self.first], 1), adj)


class GraphConv(nn.Module):
    def __init__(self, fin, fout):
        super().__init__()
        self.lin = nn.Linear(fin, fout)

    def forward(self, x, adj):
        return self.lin(adj @ x)


class GCN(nn.Module):
    def __init__(self, fin, depth, act, skip, hidden=24):
        super().__init__()
        self.convs = nn.ModuleList([GraphConv(fin if i == 0 else hidden, hidden) for i in range(depth)])
        self.field = nn.Linear(hidden, FIELDS)
        self.act, self.skip = act, skip

    def forward(self, x, adj):
        degree = adj.sum(1, keepdim=True)
        adj = adj / degree
        for i, conv in enumerate(self.convs):
            h = self.act(conv(x, adj))
            x = x + h if self.skip and i else h
        return self.field(x)


def society(n=160, loops=True, hermit=True):
    field = torch.arange(n) % FIELDS
    same = field[:, None] == field[None]
    ties = torch.rand(n, n) < torch.where(same, 0.12, 0.012)
    adj = (ties | ties.T).float()
    adj.fill_diagonal_(0)
    ring = torch.roll(torch.eye(n), FIELDS, 0)
    adj = ((adj + ring + ring.T) > 0).float()
    if hermit:
        adj[17, :] = 0
        adj[:, 17] = 0
    if loops:
        adj = adj + torch.eye(n)
    x = 0.6 * F.one_hot(field, FIELDS) + 0.9 * torch.randn(n, FIELDS)
    return torch.cat([x, torch.randn(n, 8)], 1), adj, field


def train(watch, fixed=False, seed=0, fault="hermit_attention", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    deep = fault.startswith("twenty")
    x, adj, field = society(loops=not on.startswith("hermit"))
    if fault == "hermit_attention":
        model = GAT(x.shape[1])
    else:
        depth = (20 if on else 3) if deep else 2
        model = GCN(x.shape[1], depth, torch.tanh if "tanh" in fault else F.relu, skip=fixed and deep)
    learn = torch.rand(len(x)) < 0.6
    target = field.clone()
    if on == "shuffled_fields":
        target[learn] = field[learn][torch.randperm(int(learn.sum()))]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    losses = []
    with watch(model) as dbg:
        for epoch in range(150):
            if fault == "shuffled_fields":
                x, adj, field = society()
                target = field[torch.randperm(len(field))] if on else field
            loss = F.cross_entropy(model(x, adj)[learn], target[learn])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        right = (model(x, adj)[~learn].argmax(1) == field[~learn]).float().mean().item()
    return {"loss": losses, "right": right}


def harmed(result):
    return not result["right"] > 0.7
