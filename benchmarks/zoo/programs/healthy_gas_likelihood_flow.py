"""Log-density of narrow gas readings (densities above one, so the loss is negative and should be) with a flow of couplings."""
import math

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Coupling(nn.Module):
    def __init__(self, width, flip):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 4))
        nn.init.zeros_(self.net[2].weight)
        nn.init.zeros_(self.net[2].bias)
        self.flip = flip

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        scale, shift = self.net(a).chunk(2, 1)
        scale = 2 * torch.tanh(scale)
        b = b * scale.exp() + shift
        return torch.cat([b, a] if self.flip else [a, b], 1), scale.sum(1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.full((4,), 2.0))
        self.couplings = nn.ModuleList(Coupling(32, flip=i % 2 == 1) for i in range(4))

    def forward(self, x):
        z, log_det = x * self.log_scale.exp(), self.log_scale.sum()
        for coupling in self.couplings:
            z, extra = coupling(z)
            log_det = log_det + extra
        return log_det - 0.5 * z.square().sum(1) - 2 * math.log(2 * math.pi)


def readings(n):
    a = torch.randn(n, 2)
    b = torch.stack([a[:, 0] ** 2 - 1, a[:, 0] * a[:, 1]], 1) + 0.2 * torch.randn(n, 2)
    return 0.05 * torch.cat([a, b], 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=4e-3)
    losses = []
    with watch(flow) as dbg:
        for step in range(400):
            loss = -flow(readings(128)).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    last = sum(losses[-20:]) / 20
    return {"loss": losses, "last": last, "learned": last < losses[0] - 2 and last < -5}


def harmed(result):
    return False
