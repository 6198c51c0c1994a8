"""Use of subway stations from a network of neighbours, averaged eighteen times. All stations look alike."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": ["representation_collapse", "vanishing_gradients", "optimizer_instability"], "causes": ["oversmoothing", "deep_without_residual"], "layers": ["hops"] + [f"hops.{i}" for i in range(18)], "onset": [0, 0]}


class Stations(nn.Module):
    def __init__(self, skip, depth=18, width=32):
        super().__init__()
        self.enter = nn.Linear(12, width)
        self.hops = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.use = nn.Linear(width, 3)
        self.skip = skip

    def forward(self, x, near):
        h = torch.tanh(self.enter(x))
        for hop in self.hops:
            new = torch.tanh(hop(near @ h))
            h = h + 0.3 * new if self.skip else new
        return self.use(h)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    n = 120
    kind = torch.randint(0, 3, (n,))
    edge = (torch.rand(n, n) < torch.where(kind[:, None] == kind, 0.08, 0.03)).float()
    edge = ((edge + edge.T) > 0).float() + torch.eye(n)
    near = edge / edge.sum(1, keepdim=True)
    x = torch.randn(n, 12) + 0.8 * F.one_hot(kind, 12)
    net = Stations(fixed)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    losses = []
    with watch(net) as dbg:
        for _ in range(200):
            loss = F.cross_entropy(net(x, near), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.7
