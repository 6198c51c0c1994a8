"""Spectra of stars with a compiled residual net, one-cycle rate, judged at the end on stars not seen."""

import torch
from torch import nn

ARCHITECTURE = "torch.compile"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.wide, self.back = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.back(torch.nn.functional.gelu(self.wide(self.norm(x))))


def stars(n):
    heat = torch.rand(n, 1)
    band = torch.linspace(0, 1, 24)
    return torch.exp(-20 * (band - heat) ** 2) + 0.2 * torch.randn(n, 24), (5 * heat.squeeze(1)).long().clamp(max=4)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(24, 32), Block(32), Block(32), nn.LayerNorm(32), nn.Linear(32, 5))
    fast = torch.compile(net, backend="eager")
    optimizer = torch.optim.AdamW(fast.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=8e-3, total_steps=300)
    losses = []
    with watch(fast) as dbg:
        for step in range(300):
            x, y = stars(48)
            loss = nn.functional.cross_entropy(fast(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    x, y = stars(500)
    right = (net(x).argmax(1) == y).float().mean().item()
    return {"loss": losses, "right": right, "learned": right > 0.75}


def harmed(result):
    return False
