"""Tide height with small batches and gradients gathered over 16 of them, since memory is short. All runs through,
each epoch's loss is the same as the one before."""
import math

import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["missing_optimizer_step"],
    "layers": [],
    "onset": [0, 15],
}


class Tide(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(1, 24)
        self.read = nn.Linear(24, 1)

    def forward(self, window):
        h = window.new_zeros(len(window), 24)
        for t in range(window.shape[1]):
            h = self.cell(window[:, t, None], h)
        return self.read(h).squeeze(-1)


class Loop:
    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every = model, optimizer, every
        self.history = []

    def epoch(self, batches, dbg):
        self.optimizer.zero_grad()
        for i, (window, nxt) in enumerate(batches):
            loss = nn.functional.mse_loss(self.model(window), nxt)
            (loss / self.every).backward()
            if (i + 1) % self.every == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
            dbg.record_loss(loss.item())
            self.history.append(loss.item())


def tides(n=12 * 16, length=14):
    start = torch.rand(n, 1) * 200
    t = start + torch.arange(length + 1)
    height = torch.sin(2 * math.pi * t / 12.4) + 0.5 * torch.sin(2 * math.pi * t / 11.2) + 0.05 * torch.randn(n, length + 1)
    return list(zip(height[:, :-1].split(16), height[:, -1].split(16)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Tide()
    loop = Loop(model, torch.optim.Adam(model.parameters(), lr=1e-2), every=4 if fixed else 16)
    data = tides()
    with watch(model) as dbg:
        for _ in range(32):
            loop.epoch(data, dbg)
    return {"loss": loop.history}


def harmed(result):
    return sum(result["loss"][-12:]) / 12 > 0.3
