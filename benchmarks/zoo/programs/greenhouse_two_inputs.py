"""A camera picture and a row of climate readings predict the harvest of a greenhouse row.

Somewhere in the first epoch the loss turns to nan and stays that way.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {
    "failures": ["data_anomaly", "numerical_error"],
    "causes": ["nan_in_input"],
    "layers": [],
    "onset": [61, 61],
}


class Rows(Dataset):
    def __init__(self, n, fill):
        self.ripeness = torch.rand(n)
        self.picture = self.ripeness[:, None, None, None] + 0.4 * torch.randn(n, 1, 10, 10)
        self.climate = torch.randn(n, 7)
        self.harvest = 2 * self.ripeness + 0.5 * self.climate[:, 0] - 0.3 * self.climate[:, 1] * self.climate[:, 2]
        self.climate[61 * 24 + 9, 4] = fill

    def __len__(self):
        return len(self.harvest)

    def __getitem__(self, i):
        return {"picture": self.picture[i], "climate": self.climate[i], "harvest": self.harvest[i]}


class HarvestNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.air = nn.Sequential(nn.Linear(7, 24), nn.LayerNorm(24), nn.ReLU())
        self.join = nn.Sequential(nn.Linear(32 + 24, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, picture, climate):
        return self.join(torch.cat([self.look(picture), self.air(climate)], 1)).squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(Rows(2400, 0.0 if fixed else float("nan")), batch_size=24)
    net = HarvestNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    losses = []
    with watch(net) as dbg:
        for epoch in range(3):
            for batch in loader:
                optimizer.zero_grad()
                guess = net(batch["picture"], climate=batch["climate"])
                loss = nn.functional.mse_loss(guess, batch["harvest"])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.2
