"""A reversible flow (affine couplings, zero-initialised outputs) on narrow crescents in physical units; the negative
log-likelihood goes below zero, as a density may, and keeps falling."""
import torch
from torch import nn

ARCHITECTURE = "Flow / density"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.flip(1).split(1, 1) if self.flip else x.split(1, 1)
        log_s, t = self.net(a).split(1, 1)
        log_s = 2 * torch.tanh(log_s / 2)
        b = b * log_s.exp() + t
        out = torch.cat([a, b], 1)
        return (out.flip(1) if self.flip else out), log_s.squeeze(1)


class Flow(nn.Module):
    def __init__(self, depth=6):
        super().__init__()
        self.steps = nn.ModuleList(Coupling(i % 2 == 1) for i in range(depth))
        self.log_scale = nn.Parameter(torch.zeros(2))

    def log_prob(self, x):
        x, logdet = x * self.log_scale.exp(), self.log_scale.sum()
        for s in self.steps:
            x, ld = s(x)
            logdet = logdet + ld
        return -0.5 * x.square().sum(1) - 1.8379 + logdet

    def forward(self, x):
        return self.log_prob(x)


def crescents(n):
    u = torch.randn(n)
    return torch.stack([0.3 * u, 0.3 * (u**2 - 1) * 0.5 + 0.02 * torch.randn(n)], 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    flow = Flow()
    opt = torch.optim.Adam(flow.parameters(), lr=2e-3)
    anneal = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 1200, eta_min=2e-4)
    losses = []
    with watch(flow) as dbg:
        for _ in range(1200):
            loss = -flow(crescents(128)).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            opt.step()
            anneal.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    last = sum(losses[-50:]) / 50
    return {"loss": losses, "last": last, "learned": last < -1.2}


def harmed(result):
    return False
