"""Node classification on a citation graph. Two layers reach 90 %, so I stacked sixteen; now it is chance."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "GNN"
TRUTH = {
    "failures": ["representation_collapse", "vanishing_gradients"],
    "causes": ["oversmoothing", "deep_without_residual"],
    "layers": [],
    "onset": [0, 0],
}


class GCN(nn.Module):
    def __init__(self, f, hidden, classes, depth, residual):
        super().__init__()
        self.embed = nn.Linear(f, hidden)
        self.convs = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(depth))
        self.classify = nn.Linear(hidden, classes)
        self.residual = residual

    def forward(self, x, a):
        h = F.relu(self.embed(x))
        for conv in self.convs:
            new = F.relu(a @ conv(h))
            h = h + new if self.residual else new
        return self.classify(h)


def graph(n=240, classes=4):
    y = torch.arange(n) % classes
    p = torch.where(y[:, None] == y[None], 0.10, 0.02)
    a = (torch.rand(n, n) < p).float().triu(1)
    a = a + a.T + torch.eye(n)
    d = a.sum(1).rsqrt()
    x = torch.randn(n, 16) + 0.8 * F.one_hot(y, 16).float()
    return x, d[:, None] * a * d[None], y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, a, y = graph()
    mask = torch.rand(240) < 0.5
    net = GCN(16, 32, 4, depth=16, residual=fixed)
    for layer in net.convs:
        nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
        if fixed:
            layer.weight.data.mul_(0.25)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3, weight_decay=5e-4)
    losses = []
    with watch(net) as dbg:
        for epoch in range(200):
            loss = F.cross_entropy(net(x, a)[mask], y[mask])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    with torch.no_grad():
        acc = (net(x, a)[~mask].argmax(1) == y[~mask]).float().mean().item()
    return {"loss": losses, "acc": acc}


def harmed(result):
    return result["acc"] < 0.6
