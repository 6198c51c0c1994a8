"""An autoencoder squeezes 40 gear vibration features through three numbers and rebuilds them."""

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class GearAutoencoder(nn.Module):
    def __init__(self, features=40, code=3):
        super().__init__()
        self.squeeze = nn.Sequential(nn.Linear(features, 64), nn.ELU(), nn.Linear(64, code))
        self.rebuild = nn.Sequential(nn.Linear(code, 64), nn.ELU(), nn.Linear(64, features))

    def forward(self, x):
        return self.rebuild(self.squeeze(x))


def gears(n):
    wear = torch.rand(n, 3) * 2 - 1
    mix = torch.randn(9, 40)
    basis = torch.cat([wear, wear.square(), torch.sin(3 * wear)], 1)
    x = basis @ mix + 0.1 * torch.randn(n, 40)
    return (x - x.mean(0)) / x.std(0)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x = gears(3000)
    model = GearAutoencoder()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5)
    curve = []
    with watch(model) as dbg:
        for epoch in range(8):
            for rows in torch.randperm(2400).split(48):
                loss = nn.functional.mse_loss(model(x[rows]), x[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                curve.append(loss.item())
    with torch.no_grad():
        rest = nn.functional.mse_loss(model(x[2400:]), x[2400:]).item()
    return {"loss": curve, "rest": rest, "learned": rest < 0.3}


def harmed(result):
    return False
