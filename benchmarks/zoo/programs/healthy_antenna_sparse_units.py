"""Direction of arrival with a bank of 400 ReLU matched filters, about one in ten of them active for any sample."""

import math

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class FilterBank(nn.Module):
    def __init__(self, elements=12, filters=400):
        super().__init__()
        self.match = nn.Linear(2 * elements, filters)
        self.gate = nn.ReLU()
        self.direction = nn.Linear(filters, 2)
        nn.init.normal_(self.match.weight, std=(2 * elements) ** -0.5)
        nn.init.constant_(self.match.bias, -1.25)

    def forward(self, wave):
        return self.direction(self.gate(self.match(wave)))


def arrivals(n, elements=12):
    angle = math.pi * (torch.rand(n) - 0.5)
    phase = torch.arange(elements) * math.pi * angle.sin()[:, None] * 0.5 + 6.28 * torch.rand(n, 1)
    wave = torch.cat([phase.cos(), phase.sin()], 1) * math.sqrt(2) + 0.2 * torch.randn(n, 2 * elements)
    return wave, torch.stack([(2 * angle).cos(), (2 * angle).sin()], 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    bank = FilterBank()
    optimizer = torch.optim.AdamW(bank.parameters(), lr=3e-3, weight_decay=1e-3)
    wave, angle = arrivals(6000)
    losses = []
    with watch(bank) as dbg:
        for epoch in range(6):
            for rows in torch.randperm(6000).split(64):
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(bank(wave[rows]), angle[rows])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    with torch.no_grad():
        silent = (bank.match(wave) <= 0).float().mean().item()
    last = sum(losses[-30:]) / 30
    return {"loss": losses, "silent": silent, "last": last, "learned": last < 0.25 * losses[0]}


def harmed(result):
    return False
