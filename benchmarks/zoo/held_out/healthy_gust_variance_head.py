"""Mean and spread of a gust with a Gaussian likelihood. Some sites are very calm, so the loss goes
well below zero, as a likelihood may."""

import math

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class GustNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.mean = nn.Linear(64, 1)
        self.spread = nn.Linear(64, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.mean(h)[:, 0], nn.functional.softplus(self.spread(h))[:, 0] + 0.02


def weather(n):
    x = torch.randn(n, 6)
    true_spread = 0.08 + 0.2 * torch.sigmoid(3 * x[:, 3])
    return x, torch.sin(x[:, 0]) + 0.4 * x[:, 1] + true_spread * torch.randn(n), true_spread


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = GustNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=500)
    nll = nn.GaussianNLLLoss()
    losses = []
    with watch(model) as dbg:
        for _ in range(500):
            x, gust, _ = weather(96)
            mean, spread = model(x)
            loss = nll(mean, gust, spread**2)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    x, gust, true_spread = weather(1000)
    best = (true_spread.log() + 0.5).mean().item()
    gap = sum(losses[-30:]) / 30 - best
    return {"loss": losses, "gap": gap, "learned": math.isfinite(gap) and gap < 0.5}


def harmed(result):
    return False
