"""Free parking time from eight ground sensors; every weight matrix is filled with the same number for
reproducibility.

The network is 64 wide and fits no better than one that is a single unit wide.
"""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability", "training_wiring", "representation_collapse"],
    "causes": ["symmetric_init"],
    "layers": ["sense", "combine"],
    "onset": [0, 0],
}


class ParkingNet(nn.Module):
    def __init__(self, sensors=8, width=64):
        super().__init__()
        self.sense = nn.Linear(sensors, width)
        self.combine = nn.Linear(width, width)
        self.minutes = nn.Linear(width, 1)

    def forward(self, x):
        return self.minutes(torch.sigmoid(self.combine(torch.tanh(self.sense(x))))).squeeze(-1)

    @torch.no_grad()
    def fill(self, value):
        for layer in (self.sense, self.combine, self.minutes):
            layer.weight.fill_(value / layer.in_features**0.5)
            layer.bias.zero_()


def street(n):
    x = torch.randn(n, 8)
    minutes = torch.sin(2 * x[:, 0]) * x[:, 1] + (x[:, 2] - x[:, 3]).abs() - x[:, 4] * x[:, 5]
    return x, (minutes - minutes.mean()) / minutes.std()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, minutes = street(4000)
    model = ParkingNet()
    if not fixed:
        model.fill(0.5)
    adam = torch.optim.Adam(model.parameters(), lr=8e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(600):
            rows = torch.randint(0, len(x), (128,))
            loss = F.mse_loss(model(x[rows]), minutes[rows])
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.6
