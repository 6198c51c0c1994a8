"""Density of two moons by affine coupling layers; the log-determinant was collected for the inverse direction.

The 'negative log-likelihood' dives without end, samples from the flow are scattered far away.
"""
import math

import torch
from torch import nn

ARCHITECTURE = "Flow / density"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["wrong_loss_sign"],
    "layers": [],
    "onset": [0, 0],
}


class Coupling(nn.Module):
    def __init__(self, flip, width=48):
        super().__init__()
        self.flip = flip
        self.st = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))

    def halves(self, x):
        a, b = x.chunk(2, dim=1)
        return (b, a) if self.flip else (a, b)

    def forward(self, x):
        a, b = self.halves(x)
        s, t = self.st(a).chunk(2, dim=1)
        s = 1.5 * torch.tanh(s)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], 1), s.squeeze(1)

    def inverse(self, z):
        a, b = self.halves(z)
        s, t = self.st(a).chunk(2, dim=1)
        b = (b - t) * (-1.5 * torch.tanh(s)).exp()
        return torch.cat([b, a] if self.flip else [a, b], 1)


class Flow(nn.Module):
    def __init__(self, n=6):
        super().__init__()
        self.steps = nn.ModuleList(Coupling(i % 2 == 1) for i in range(n))

    def forward(self, x):
        logdet = x.new_zeros(len(x))
        for step in self.steps:
            x, ld = step(x)
            logdet = logdet + ld
        return x, logdet

    def sample(self, n):
        z = torch.randn(n, 2)
        for step in reversed(self.steps):
            z = step.inverse(z)
        return z


def moons(n):
    a = math.pi * torch.rand(n)
    up = (torch.rand(n) < 0.5).float()
    x = torch.stack([a.cos() + (1 - up), a.sin() * (2 * up - 1) + 0.5 * (1 - up)], 1) - torch.tensor([0.5, 0.25])
    return (x + 0.06 * torch.randn(n, 2)) * 1.4


def nll(z, logdet, sign):
    return (0.5 * z.square().sum(1) + math.log(2 * math.pi) + sign * logdet).mean()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    flow = Flow()
    opt = torch.optim.Adam(flow.parameters(), lr=2e-3)
    sign = -1.0 if fixed else 1.0
    history = []
    with watch(flow) as dbg:
        for it in range(400):
            loss = nll(*flow(moons(128)), sign)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            opt.step()
            dbg.record_loss(loss.item())
            history.append(loss.item())
    with torch.no_grad():
        gap = torch.cdist(flow.sample(500), moons(500)).min(1).values.mean().item()
        true_nll = nll(*flow(moons(1000)), -1.0).item()
    return {"loss": history, "gap": gap, "true_nll": true_nll}


def harmed(result):
    return not result["true_nll"] < 2.4
