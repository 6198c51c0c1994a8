"""Diffusion over wind profiles. The noise ramp of the thousand-step recipe is stretched to twenty
steps, and the loss is NaN from the first batch on."""
import math

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["numerical_error", "optimizer_instability"],
    "causes": ["noise_schedule_invalid"],
    "layers": [],
    "onset": [0, 0],
}
HEIGHTS = 24


class Ramp:
    def __init__(self, steps, last=None):
        stretch = 1000 / steps
        last = 0.02 * stretch * 1.2 if last is None else last
        betas = torch.linspace(1e-4 * stretch, last, steps)
        self.kept = torch.cumprod(1 - betas, 0)
        self.steps = steps

    def noisy(self, clean, t, noise):
        kept = self.kept[t][:, None]
        return kept.sqrt() * clean + (1 - kept).sqrt() * noise


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.when = nn.Embedding(64, width)
        self.enter = nn.Linear(HEIGHTS, width)
        self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(2)])
        self.leave = nn.Linear(width, HEIGHTS)

    def forward(self, profile, t):
        h = self.enter(profile) + self.when(t)
        for block in self.blocks:
            h = h + block(h)
        return self.leave(h)


def profiles(n):
    z = torch.linspace(0.1, 1, HEIGHTS)
    shear, jet = torch.rand(n, 1) * 2, torch.rand(n, 1)
    p = shear * z.log() + torch.exp(-((z - jet) ** 2) / 0.02)
    return (p - p.mean()) / p.std()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data = profiles(2000)
    ramp = Ramp(20, last=0.5) if fixed else Ramp(20)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    total = 350
    cosine = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * s / total)) + 0.02)
    losses = []
    with watch(model) as dbg:
        for _ in range(total):
            clean = data[torch.randint(0, len(data), (64,))]
            t, noise = torch.randint(0, ramp.steps, (64,)), torch.randn(64, HEIGHTS)
            loss = F.mse_loss(model(ramp.noisy(clean, t, noise), t), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cosine.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.45
