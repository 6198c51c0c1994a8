"""Diffusion on knitting patterns of 24 stitches. The schedule was stretched from a recipe for a thousand steps
down to sixty.

The loss of nearly every batch is nan from the very beginning.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error", "optimizer_instability", "data_anomaly"],
    "causes": ["noise_schedule_invalid", "nan_in_input"],
    "layers": [],
    "onset": [0, 3],
}
STITCHES = 24


class Schedule:
    def __init__(self, steps, first, last):
        beta = torch.linspace(first, last, steps)
        self.kept = torch.cumprod(1 - beta, 0)
        self.steps = steps

    def noised(self, clean, t):
        noise = torch.randn_like(clean)
        kept = self.kept[t][:, None]
        return kept.sqrt() * clean + (1 - kept).sqrt() * noise, noise


class Denoiser(nn.Module):
    def __init__(self, steps, width=96):
        super().__init__()
        self.when = nn.Embedding(steps, width)
        self.enter = nn.Linear(STITCHES, width)
        self.middle = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.leave = nn.Linear(width, STITCHES)

    def forward(self, pattern, t):
        h = self.enter(pattern) + self.when(t)
        return self.leave(h + self.middle(h))


def patterns(n):
    repeat = torch.randint(2, 7, (n, 1))
    start = torch.randint(0, 6, (n, 1))
    return (((torch.arange(STITCHES) + start) // repeat) % 2).float() * 2 - 1


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    last = 0.12 if fixed else 0.02 * 1000 / 15
    schedule = Schedule(60, 1e-3, last)
    model = Denoiser(schedule.steps)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for update in range(400):
            clean = patterns(64)
            t = torch.randint(0, schedule.steps, (64,))
            noisy, noise = schedule.noised(clean, t)
            loss = nn.functional.mse_loss(model(noisy, t), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-40:]) / 40 < 0.6
