"""Digit-like images kept as uint8; I normalise with // 255 in the dataset. The network predicts the same class
for everything."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["data_anomaly"],
    "causes": ["constant_input"],
    "layers": [],
    "onset": [0, 0],
}


class Digits(Dataset):
    def __init__(self, n, divide, rng):
        strokes = (rng.random((10, 12, 12)) < 0.3).astype(np.float64)
        self.y = rng.integers(0, 10, n)
        img = strokes[self.y] * rng.uniform(120, 235, (n, 1, 1)) + rng.normal(0, 12, (n, 12, 12))
        self.x = np.clip(img, 0, 250).astype(np.uint8)
        self.divide = divide

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.tensor(self.divide(self.x[i]), dtype=torch.float32)[None], int(self.y[i])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    divide = (lambda a: a / 255) if fixed else (lambda a: a // 255)
    loader = DataLoader(Digits(1600, divide, rng), batch_size=50, shuffle=True)
    cnn = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 16, 32), nn.ReLU(), nn.Linear(32, 10))
    optim = torch.optim.Adam(cnn.parameters(), lr=2e-3)
    lossfn = nn.CrossEntropyLoss()
    curve = []
    with watch(cnn) as dbg:
        for epoch in range(6):
            for x, y in loader:
                optim.zero_grad()
                loss = lossfn(cnn(x), y)
                loss.backward()
                optim.step()
                curve.append(loss.item())
                dbg.record_loss(curve[-1])
    return {"loss": curve}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 1.0
