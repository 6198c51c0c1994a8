"""Bearing life of wind turbines: a network gives shape and scale of a Weibull distribution,
trained by likelihood. After a few hundred turbines the loss is inf and every weight is NaN."""
from dataclasses import dataclass

import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error", "data_anomaly"],
    "causes": ["log_of_nonpositive", "degenerate_targets"],
    "layers": [],
    "onset": [14, 14],
}


@dataclass
class Settings:
    batch: int = 48
    passes: int = 4
    lr: float = 5e-3
    shortest: float = 0.0


class LifeModel(nn.Module):
    def __init__(self, sensors=9):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(sensors, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.shape, self.scale = nn.Linear(48, 1), nn.Linear(48, 1)

    def forward(self, x):
        h = self.trunk(x)
        soft = nn.functional.softplus
        return soft(self.shape(h)).squeeze(1) + 0.3, soft(self.scale(h)).squeeze(1) + 0.05


def negative_log_likelihood(shape, scale, years):
    ratio = years / scale
    density = shape.log() - scale.log() + (shape - 1) * torch.log(ratio) - ratio**shape
    return -density.mean()


def fleet(count):
    x = torch.randn(count, 9)
    scale = torch.exp(0.5 * x[:, 0] - 0.6 * x[:, 1] * x[:, 2].sign()) * 2
    years = scale * (-torch.rand(count).log()) ** (1 / 2.5)
    years[14 * 48 + 20] = 0.0  # failed while it was being mounted
    return x, years


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    cfg = Settings(shortest=0.05 if fixed else 0.0)
    x, years = fleet(48 * 40)
    years = years.clamp(min=cfg.shortest)
    model = LifeModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    curve = []
    with watch(model) as dbg:
        for _ in range(cfg.passes):
            for xb, yb in zip(x.split(cfg.batch), years.split(cfg.batch)):
                optimizer.zero_grad()
                loss = negative_log_likelihood(*model(xb), yb)
                loss.backward()
                optimizer.step()
                curve.append(loss.item())
                dbg.record_loss(loss)
    return {"loss": curve}


def harmed(result):
    start, end = sum(result["loss"][:5]) / 5, sum(result["loss"][-40:]) / 40
    return not end < start - 0.3
