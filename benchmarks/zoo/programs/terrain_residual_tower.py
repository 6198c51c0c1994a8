"""Terrain class from an elevation patch, a tower of twenty residual blocks without any normalisation, after a
paper that does the same. The first loss is enormous and the run ends at chance."""
import math

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "ResNet"
TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability"],
    "causes": ["residual_scale_growth"],
    "layers": ["tower"] + [f"tower.{i}{s}" for i in range(20) for s in ("", ".c1", ".c2")] + ["head"],
    "onset": [0, 0],
}


class Bottle(nn.Module):
    def __init__(self, width, alpha):
        super().__init__()
        self.c1 = nn.Conv2d(width, width, 3, padding=1)
        self.c2 = nn.Conv2d(width, width, 3, padding=1)
        self.alpha = alpha
        for conv in (self.c1, self.c2):
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")

    def forward(self, x):
        return x + self.alpha * self.c2(F.relu(self.c1(F.relu(x))))


class Terrain(nn.Module):
    def __init__(self, depth, alpha, width=12):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.tower = nn.ModuleList([Bottle(width, alpha) for _ in range(depth)])
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.stem(x)
        for block in self.tower:
            x = block(x)
        return self.head(x.mean((-1, -2)))


def patches(n):
    axis = torch.linspace(0, 2 * math.pi, 12)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    kind = torch.randint(0, 4, (n,))
    base = torch.stack([(2 * x).sin(), (2 * y).sin(), (2 * (x + y)).sin(), torch.zeros_like(x)])
    return (base[kind] + 0.3 * torch.randn(n, 12, 12))[:, None], kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    depth = 20
    model = Terrain(depth, 1 / math.sqrt(2 * depth) if fixed else 1.0)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses = []
    with watch(model) as dbg:
        for _ in range(130):
            x, kind = patches(24)
            loss = F.cross_entropy(model(x), kind)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.8
