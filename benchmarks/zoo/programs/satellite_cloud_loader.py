"""Cloud types in satellite cut-outs stored as bytes; the loader scales them before it turns them into floats.

The network answers the most common cloud for every picture, even for its training pictures.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability", "representation_collapse"],
    "causes": ["constant_input"],
    "layers": [],
    "onset": [0, 0],
}
SIDE, CLOUDS = 12, 4


class Cutouts(Dataset):
    def __init__(self, n, rng, fixed):
        self.cloud = rng.integers(0, CLOUDS, n)
        y, x = np.mgrid[0:SIDE, 0:SIDE]
        phase = rng.uniform(0, 6, (n, 1, 1))
        waves = np.stack(
            [np.sin(0.5 * x + 0 * y), np.sin(1.2 * y + 0 * x), np.sin(0.8 * (x + y)), np.sin(1.5 * (x - y))]
        )
        shifted = np.sin(np.arcsin(waves[self.cloud]) + phase)
        pixels = 120 + 70 * shifted + rng.normal(0, 25, (n, SIDE, SIDE))
        self.pixels = pixels.clip(0, 254).astype(np.uint8)
        self.fixed = fixed

    def __len__(self):
        return len(self.cloud)

    def __getitem__(self, i):
        scaled = self.pixels[i] / 255 if self.fixed else self.pixels[i] // 255
        return torch.as_tensor(scaled, dtype=torch.float32)[None], int(self.cloud[i])


class CloudNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 3), nn.ReLU(), nn.Flatten()
        )
        self.cloud = nn.Sequential(nn.Linear(24 * 4, 32), nn.ReLU(), nn.Linear(32, CLOUDS))

    def forward(self, cutout):
        return self.cloud(self.features(cutout))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(Cutouts(1200, np.random.default_rng(seed), fixed), batch_size=40, shuffle=True)
    net = CloudNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    losses = []
    with watch(net) as dbg:
        for epoch in range(10):
            for cutout, cloud in loader:
                optimizer.zero_grad()
                loss = criterion(net(cutout), cloud)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.9
