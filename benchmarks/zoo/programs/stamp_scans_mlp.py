"""Stamps from scans of 12x12 pixels, bytes as they come from the scanner, a plain MLP and SGD.

The loss is in the hundreds at first; a few batches later it is log(6) and remains there.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {
    "failures": ["data_anomaly", "dead_neurons", "optimizer_instability", "exploding_gradients"],
    "causes": ["unnormalized_input"],
    "layers": ["flat.1", "flat.2", "flat"],
    "onset": [0, 3],
}


class Scans(Dataset):
    def __init__(self, n, rng, motifs, transform):
        self.country = rng.integers(0, len(motifs), n)
        pixels = motifs[self.country] + rng.normal(0, 45, (n, 12, 12))
        self.pixels = pixels.clip(0, 255).astype(np.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.country)

    def __getitem__(self, i):
        return self.transform(torch.from_numpy(self.pixels[i])), int(self.country[i])


def as_float(picture):
    return picture.float()


def standard(picture):
    return (picture.float() / 255 - 0.5) / 0.28


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    motifs = rng.integers(60, 200, (6, 12, 12))
    loader = DataLoader(Scans(1200, rng, motifs, standard if fixed else as_float), batch_size=40, shuffle=True)
    net = nn.Sequential()
    net.add_module("flat", nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()))
    net.add_module("country", nn.Linear(64, 6))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    losses = []
    with watch(net) as dbg:
        for epoch in range(8):
            for picture, country in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(picture), country)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.8
