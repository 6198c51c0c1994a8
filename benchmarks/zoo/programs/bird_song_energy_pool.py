"""Bird songs from wave forms, with a pool that sums the energy of each channel over time, kept in a short
format to save memory. The loss is not a number from the first batch on."""
import math

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["half_precision_overflow"],
    "layers": ["pool"],
    "onset": [0, 0],
}


class Pool(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, h):
        energy = (h.to(self.dtype) * 8).square().sum(-1)
        return energy.log().float()


class Songs(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.bank = nn.Conv1d(1, 24, 33, stride=2)
        self.pool = Pool(dtype)
        self.norm = nn.LayerNorm(24)
        self.out = nn.Linear(24, 5)

    def forward(self, wave):
        return self.out(self.norm(self.pool(self.bank(wave.unsqueeze(1)))))


def songs(n):
    kind = torch.randint(0, 5, (n,))
    t = torch.arange(1024.0) / 1024
    tone = torch.sin(2 * math.pi * (30 + 25 * kind[:, None]) * t + 6 * torch.rand(n, 1))
    return 3.0 * tone + torch.randn(n, 1024), kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Songs(torch.float32 if fixed else torch.float16)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(150):
            wave, kind = songs(24)
            loss = F.cross_entropy(model(wave), kind)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.6
