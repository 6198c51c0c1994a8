"""Graph network that predicts a property of small molecules; graphs are batched as dense adjacency.

After some iterations nan, it is always the same iteration when the data are not shuffled.
"""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "GNN"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["division_by_zero"],
    "layers": ["gc1"],
    "onset": [17, 17],
}
NODES = 9


class GraphConv(nn.Module):
    def __init__(self, c_in, c_out, tiny):
        super().__init__()
        self.lin = nn.Linear(c_in, c_out)
        self.tiny = tiny

    def forward(self, h, adj):
        degree = adj.sum(-1).clamp(min=self.tiny)
        norm = degree.pow(-0.5)
        a = norm[:, :, None] * adj * norm[:, None, :]
        return self.lin(h + a @ h)


class MolNet(nn.Module):
    def __init__(self, tiny):
        super().__init__()
        self.gc1 = GraphConv(4, 32, tiny)
        self.gc2 = GraphConv(32, 32, tiny)
        self.gc3 = GraphConv(32, 32, tiny)
        self.readout = nn.Linear(32, 1)

    def forward(self, h, adj):
        h = F.silu(self.gc1(h, adj))
        h = F.silu(self.gc2(h, adj))
        h = F.silu(self.gc3(h, adj))
        return self.readout(h.mean(1)).squeeze(-1)


def molecules(n):
    kind = torch.randint(0, 4, (n, NODES))
    adj = torch.zeros(n, NODES, NODES)
    for g in range(n):
        for v in range(1, NODES):
            u = int(torch.randint(0, v, (1,)))
            adj[g, u, v] = adj[g, v, u] = 1.0
    weight = torch.tensor([0.2, 1.0, -0.7, 0.5])[kind]
    y = weight.mean(1) + 0.3 * (weight[:, :, None] * adj * weight[:, None, :]).sum((1, 2)) / NODES
    return F.one_hot(kind, 4).float(), adj, (y - y.mean()) / y.std()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    h, adj, y = molecules(800)
    adj[560, NODES - 1, :] = 0.0
    adj[560, :, NODES - 1] = 0.0
    model = MolNet(tiny=1.0 if fixed else 0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(8):
            for s in range(0, 800, 32):
                optimizer.zero_grad()
                loss = F.smooth_l1_loss(model(h[s : s + 32], adj[s : s + 32]), y[s : s + 32])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    tail = result["loss"][-10:]
    return not sum(tail) / 10 < 0.25
