"""A one-dimensional convolutional GAN draws short waves; non-saturating loss, Adam. Losses never
settle, waves get right."""

import math

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
LENGTH = 24


class WaveMaker(nn.Module):
    def __init__(self, noise=6):
        super().__init__()
        self.noise = noise
        self.spread = nn.Linear(noise, 24 * 6)
        self.up1 = nn.ConvTranspose1d(24, 24, 4, 2, 1)
        self.up2 = nn.ConvTranspose1d(24, 12, 4, 2, 1)
        self.last = nn.Conv1d(12, 1, 5, padding=2)

    def forward(self, n):
        h = F.relu(self.spread(torch.randn(n, self.noise)).view(n, 24, 6))
        return self.last(F.relu(self.up2(F.relu(self.up1(h)))))


class WaveJudge(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv1d(1, 16, 5, 2, 2), nn.LeakyReLU(0.2), nn.Conv1d(16, 32, 5, 2, 2), nn.LeakyReLU(0.2), nn.Flatten()
        )
        self.score = nn.Linear(32 * 6, 1)

    def forward(self, wave):
        return self.score(self.down(wave))


def waves(n):
    phase = 2 * math.pi * torch.rand(n, 1)
    height = 0.7 + 0.3 * torch.rand(n, 1)
    t = torch.arange(LENGTH) / LENGTH
    return (height * torch.sin(4 * math.pi * t + phase))[:, None]


def mismatch(a, b):
    a, b = a.flatten(1), b.flatten(1)
    return (torch.cov(a.T) - torch.cov(b.T)).norm().item() + (a.mean(0) - b.mean(0)).norm().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    maker, judge = WaveMaker(), WaveJudge()
    opt_maker = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.9))
    opt_judge = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.9))
    true, log = waves(1000), {"loss": [], "judge_loss": []}
    with watch({"maker": maker, "judge": judge}) as dbg:
        with torch.no_grad():
            log["start"] = mismatch(maker(1000), true)
        for step in range(500):
            drawn = maker(48)
            judge_loss = F.softplus(-judge(waves(48))).mean() + F.softplus(judge(drawn.detach())).mean()
            opt_judge.zero_grad()
            judge_loss.backward()
            opt_judge.step()
            maker_loss = F.softplus(-judge(drawn)).mean()
            opt_maker.zero_grad()
            maker_loss.backward()
            opt_maker.step()
            dbg.record_loss(maker_loss.item())
            log["loss"].append(maker_loss.item())
            log["judge_loss"].append(judge_loss.item())
        with torch.no_grad():
            log["end"] = mismatch(maker(1000), true)
    log["learned"] = log["end"] < 0.5 * log["start"]
    return log


def harmed(result):
    return False
