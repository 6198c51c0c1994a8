"""Power of a wind turbine from met-mast readings, a five-layer network and plain SGD.

The printed error is fine for a moment, then it has six digits and finally it prints nan.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients", "numerical_error"],
    "causes": ["lr_too_high"],
    "layers": [],
    "onset": [0, 3],
}


@dataclass
class Settings:
    width: int = 96
    lr: float = 0.4
    batch: int = 128
    steps: int = 300


class PowerCurve(nn.Module):
    def __init__(self, readings, width):
        super().__init__()
        self.mast = nn.Linear(readings, width)
        self.rotor = nn.Linear(width, width)
        self.gearbox = nn.Linear(width, width)
        self.generator = nn.Linear(width, width)
        self.grid = nn.Linear(width, 1)

    def forward(self, readings):
        h = F.leaky_relu(self.mast(readings), 0.1)
        h = F.leaky_relu(self.rotor(h), 0.1)
        h = F.leaky_relu(self.gearbox(h), 0.1)
        h = F.leaky_relu(self.generator(h), 0.1)
        return self.grid(h)


def met_mast(hours):
    speed = 3 + 12 * torch.rand(hours)
    yaw, density, turbulence = torch.randn(hours), 1.2 + 0.05 * torch.randn(hours), torch.rand(hours)
    power = density * speed.clamp(4, 12).pow(3) * torch.cos(0.3 * yaw) * (1 - 0.2 * turbulence)
    table = torch.stack([speed, yaw, density, turbulence, speed.pow(2)], 1)
    table = (table - table.mean(0)) / table.std(0)
    return table, ((power - power.mean()) / power.std())[:, None]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    cfg = Settings(lr=0.01) if fixed else Settings()
    table, power = met_mast(4000)
    model = PowerCurve(table.shape[1], cfg.width)
    for layer in (model.mast, model.rotor, model.gearbox, model.generator):
        nn.init.kaiming_normal_(layer.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    errors = []
    with watch(model) as dbg:
        for _ in range(cfg.steps):
            rows = torch.randint(0, len(table), (cfg.batch,))
            optimizer.zero_grad()
            loss = F.mse_loss(model(table[rows]), power[rows])
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            errors.append(loss.item())
    return {"loss": errors}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.3
