"""Roles of compounds in a graph with four kinds of edges, one transform for each kind. The network that has many
weights on paper does hardly better than one without edges."""
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "GNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["unregistered_modules"],
    "layers": ["one", "two"],
    "onset": [0, 0],
}
KINDS = 4


@dataclass
class Maps:
    by_kind: dict = field(default_factory=dict)


class Relational(nn.Module):
    def __init__(self, cin, cout, fixed):
        super().__init__()
        made = {str(k): nn.Linear(cin, cout, bias=False) for k in range(KINDS)}
        self.maps = nn.ModuleDict(made) if fixed else Maps(made)
        self.own = nn.Linear(cin, cout)
        self.fixed = fixed

    def forward(self, h, edges):
        maps = self.maps if self.fixed else self.maps.by_kind
        out = self.own(h)
        for kind, adjacency in enumerate(edges):
            out = out + adjacency @ maps[str(kind)](h)
        return out


class Net(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.one = Relational(8, 8, fixed)
        self.two = Relational(8, 8, fixed)
        self.role = nn.Linear(8, 4)

    def forward(self, h, edges):
        return self.role(torch.tanh(self.two(torch.tanh(self.one(h, edges)), edges)))


def graph(nodes=60):
    h = torch.randn(nodes, 8)
    edges = (torch.rand(KINDS, nodes, nodes) < 0.03).float()
    edges = edges / edges.sum(-1, keepdim=True).clamp(min=1)
    a, b = edges[0] @ h[:, 0] - edges[1] @ h[:, 1], edges[2] @ h[:, 2] - edges[3] @ h[:, 3]
    return h, edges, (a > 0).long() * 2 + (b > 0).long()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Net(fixed)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with watch(model) as dbg:
        for _ in range(500):
            h, edges, role = graph()
            loss = F.cross_entropy(model(h, edges), role)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.5
