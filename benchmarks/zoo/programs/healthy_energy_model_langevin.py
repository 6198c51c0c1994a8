"""An energy model of two moons, with samples drawn by Langevin steps on its input and kept in a buffer. The loss
hovers about zero and changes its sign, and each step makes dozens of passes that train nothing."""
import math

import torch
from torch import nn

ARCHITECTURE = "Flow / density"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def moons(n):
    angle = torch.rand(n) * math.pi
    upper = torch.rand(n) < 0.5
    x = torch.where(upper, angle.cos(), 1 - angle.cos()) - 0.5
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin()) - 0.25
    return torch.stack([x, y], 1) * 1.5 + 0.08 * torch.randn(n, 2)


def langevin(energy, x, steps=12, size=0.02):
    for _ in range(steps):
        x = x.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(energy(x).sum(), x)
        x = x - size * slope.clamp(-5, 5) + 0.05 * torch.randn_like(x)
    return x.detach().clamp(-4, 4)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    energy = Energy()
    opt = torch.optim.Adam(energy.parameters(), lr=2e-3, betas=(0.5, 0.99))
    buffer = torch.rand(1024, 2) * 6 - 3
    losses = []
    with watch(energy) as dbg:
        for _ in range(400):
            rows = torch.randint(0, len(buffer), (96,))
            start = torch.where(torch.rand(96, 1) < 0.1, torch.rand(96, 2) * 6 - 3, buffer[rows])
            fake = langevin(energy, start)
            buffer[rows] = fake
            low, high = energy(moons(96)), energy(fake)
            loss = low.mean() - high.mean() + 0.05 * (low.square() + high.square()).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        gap = (energy(torch.rand(1000, 2) * 6 - 3).mean() - energy(moons(1000)).mean()).item()
        near = torch.cdist(buffer, moons(1000)).min(1).values.median().item()
    return {"loss": losses, "gap": gap, "near": near, "learned": gap > 0.5 and near < 0.3}


def harmed(result):
    return False
