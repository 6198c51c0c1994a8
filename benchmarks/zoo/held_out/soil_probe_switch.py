"""Soil moisture from a probe, with a switch layer that sends each reading to one of six experts
and a term for their balance. It is no better than one small network without any switch."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MoE"
TRUTH = {
    "failures": ["representation_collapse", "dead_neurons"],
    "causes": ["router_collapse", "wrong_loss_sign"],
    "layers": ["switch", "switch.router"] + [f"switch.experts.{i}" for i in range(6)],
    "onset": [0, 120],
}


class Switch(nn.Module):
    """Top-1 routing, the output scaled by the probability of the choice."""

    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, width))
            for _ in range(experts)
        )

    def forward(self, h):
        chance = self.router(h).softmax(-1)
        best, choice = chance.max(-1)
        out = torch.zeros_like(h)
        for i, expert in enumerate(self.experts):
            rows = (choice == i).nonzero()[:, 0]
            out = out.index_add(0, rows, expert(h[rows]) * best[rows, None])
        load = F.one_hot(choice, chance.shape[-1]).float().mean(0)
        return h + out, load, (load * chance.mean(0)).sum() * chance.shape[-1]


class ProbeNet(nn.Module):
    def __init__(self, experts=6, width=16):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.switch = Switch(width, experts)
        self.moisture = nn.Linear(width, 1)

    def forward(self, reading):
        h, load, balance = self.switch(self.embed(reading))
        return self.moisture(h)[:, 0], load, balance


class Field:
    def __init__(self, soils=8):
        self.place = 2.0 * torch.randn(soils, 4)
        self.slope = torch.randn(soils, 4)

    def readings(self, n):
        soil = torch.randint(0, len(self.place), (n,))
        where = self.place[soil] + 0.4 * torch.randn(n, 4)
        probe = torch.randn(n, 4)
        moisture = (probe * self.slope[soil]).sum(1) / 2
        return torch.cat([where / 2, probe], 1), moisture


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    field, model = Field(), ProbeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses, loads = [], []
    with watch(model) as dbg:
        for _ in range(450):
            reading, moisture = field.readings(96)
            predicted, load, balance = model(reading)
            loss = F.mse_loss(predicted, moisture)
            loss = loss + 0.1 * balance if fixed else loss - 0.1 * balance
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(F.mse_loss(predicted, moisture).item())
            loads.append(load.max().item())
    return {"loss": losses, "busiest": sum(loads[-40:]) / 40}


def harmed(result):
    return result["busiest"] > 0.8
