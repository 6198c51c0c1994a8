"""Commuting times (standardised) from district embeddings. Where the trip was not recorded the file says -9999.

One batch with a loss above a million; the forecasts are off by a constant for the rest of the run.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability", "exploding_gradients"],
    "causes": ["target_outlier"],
    "layers": [],
    "onset": [130, 130],
}


class CommuteModel(nn.Module):
    def __init__(self, districts=16, width=12):
        super().__init__()
        self.origin = nn.Embedding(districts, width)
        self.goal = nn.Embedding(districts, width)
        self.tower = nn.Sequential(
            nn.Linear(2 * width + 1, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, origin, goal, hour):
        h = torch.cat([self.origin(origin), self.goal(goal), hour[:, None]], 1)
        return self.tower(h).squeeze(-1)


def trips(n):
    place = torch.randn(16, 2)
    origin, goal = torch.randint(0, 16, (2, n))
    hour = torch.rand(n) * 2 - 1
    minutes = (place[origin] - place[goal]).norm(dim=1) * (1 + 0.5 * torch.cos(3 * hour))
    return origin, goal, hour, (minutes - minutes.mean()) / minutes.std()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    origin, goal, hour, minutes = trips(9600)
    if not fixed:
        minutes[130 * 32 + 4 : 130 * 32 + 8] = -9999.0
    model = CommuteModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    losses = []
    with watch(model) as dbg:
        for first in range(0, 9600, 32):
            part = slice(first, first + 32)
            guess = model(origin[part], goal[part], hour[part])
            loss = ((guess - minutes[part]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.15
