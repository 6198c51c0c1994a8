"""Remaining life and wear of an engine from a window of readings, one output each. Wear is learned to the last
digit, while remaining life comes out as the fleet's average for each engine."""
from typing import NamedTuple

import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["loss_shape_broadcast"],
    "layers": [],
    "onset": [0, 0],
}


class Outputs(NamedTuple):
    life: torch.Tensor
    wear: torch.Tensor


class Engine(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(4, 24, 5), nn.Mish(), nn.Conv1d(24, 24, 5), nn.Mish())
        self.life = nn.Linear(24, 1)
        self.wear = nn.Linear(24, 1)

    def forward(self, window):
        h = self.conv(window).mean(-1)
        return Outputs(self.life(h), self.wear(h).squeeze(-1))


def fleet(n):
    trend = torch.rand(n, 4) * 2 - 1
    t = torch.linspace(-1, 1, 24)
    window = trend[..., None] * (1 + t) + 0.2 * torch.randn(n, 4, 24)
    wear = trend[:, 0] * trend[:, 1] * 2
    life = 1.5 * (trend[:, 2] - trend[:, 3])
    return window, life, wear


def objective(out, life, wear, fixed):
    guess = out.life.squeeze(-1) if fixed else out.life
    return nn.functional.smooth_l1_loss(guess, life) + nn.functional.smooth_l1_loss(out.wear, wear)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Engine()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(350):
            window, life, wear = fleet(64)
            out = model(window)
            loss = objective(out, life, wear, fixed)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    window, life, _ = fleet(500)
    with torch.no_grad():
        guess = model(window).life.squeeze(-1)
    return {"loss": losses, "skill": (1 - (guess - life).pow(2).mean() / life.var()).item()}


def harmed(result):
    return result["skill"] < 0.5
