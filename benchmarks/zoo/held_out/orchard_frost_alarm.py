"""Frost alarm for orchards from the evening's station readings, season after season. After some
weeks the alarm is wrong most of the time, and the validation orchard suffers with it."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["data_anomaly"],
    "causes": ["input_distribution_shift"],
    "layers": [],
    "onset": [220, 220],
}


class Station:
    """Evening readings: temperature and dew point in degrees, humidity, wind, cloud."""

    def __init__(self, generator):
        self.generator = generator

    def evening(self, n):
        draw = torch.randn(n, 5, generator=self.generator)
        celsius = 4.0 + 5.0 * draw[:, 0]
        dew = celsius - 3.0 - 1.5 * draw[:, 1].abs()
        frost = celsius + 0.5 * dew + 2.5 * draw[:, 4] - 2.0 * draw[:, 3] < 1.0
        return torch.stack([celsius, dew, draw[:, 2], draw[:, 3], draw[:, 4]], 1), frost.float()


def scale(readings):
    centre = torch.tensor([4.0, 0.0, 0.0, 0.0, 0.0])
    spread = torch.tensor([5.0, 5.2, 1.0, 1.0, 1.0])
    return (readings - centre) / spread


class Alarm(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(5, 32)
        self.norm = nn.LayerNorm(32)
        self.second = nn.Linear(32, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        x = F.gelu(self.norm(self.hidden(x)))
        return self.out(F.gelu(self.second(x))).squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    station = Station(torch.Generator().manual_seed(seed + 50))
    check_x, check_y = Station(torch.Generator().manual_seed(7)).evening(1000)
    model = Alarm()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for night in range(320):
            readings, frost = station.evening(64)
            if night >= 220 and not fixed:  # the stations got new loggers, made abroad
                readings[:, :2] = readings[:, :2] * 1.8 + 32
            loss = F.binary_cross_entropy_with_logits(model(scale(readings)), frost)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        right = ((model(scale(check_x)) > 0) == check_y.bool()).float().mean().item()
    return {"loss": losses, "accuracy": right}


def harmed(result):
    before, after = sum(result["loss"][190:220]) / 30, sum(result["loss"][220:250]) / 30
    return result["accuracy"] < 0.85 or after > 1.7 * before
