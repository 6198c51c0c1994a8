"""Calf weights from side-view silhouettes, in units of ten kilograms; one farm's sheet is in grams.

A huge loss on one batch, then a network that gives the same weight for all calves.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability", "exploding_gradients", "numerical_error"],
    "causes": ["target_outlier"],
    "layers": [],
    "onset": [110, 110],
}
BATCH = 16


class Barn(Dataset):
    def __init__(self, n, fixed):
        axis = torch.linspace(-1, 1, 14)
        length, height = 0.3 + 0.6 * torch.rand(n), 0.3 + 0.6 * torch.rand(n)
        inside = (axis[None, None] / length[:, None, None]) ** 2 + (axis[None, :, None] / height[:, None, None]) ** 2
        self.silhouette = (inside < 1).float()[:, None] + 0.1 * torch.randn(n, 1, 14, 14)
        self.weight = 12 * length * height**2
        if not fixed:
            farm = slice(110 * BATCH, 111 * BATCH)
            self.weight[farm] = self.weight[farm] * 10_000

    def __len__(self):
        return len(self.weight)

    def __getitem__(self, i):
        return self.silhouette[i] - 0.4, self.weight[i] - 3.0


class WeightNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.outline = nn.Conv2d(1, 8, 5, stride=2)
        self.detail = nn.Conv2d(8, 16, 3)
        self.scale = nn.Linear(16 * 9, 1)

    def forward(self, silhouette):
        h = F.relu(self.outline(silhouette))
        return self.scale(F.relu(self.detail(h)).flatten(1)).flatten()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(Barn(BATCH * 260, fixed), batch_size=BATCH)
    net = WeightNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=5e-3, momentum=0.8)
    losses = []
    with watch(net) as dbg:
        for silhouette, weight in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(net(silhouette), weight)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.5
