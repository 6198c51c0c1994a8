"""Wear of pumps from vibration features; a parameter-free layer standardises every batch.

Each epoch starts well in the log, but after the first one every prediction is NaN.
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["single_sample_statistics"],
    "layers": ["scale"],
    "onset": [16, 16],
}


class BatchScale(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)) / (x.std(0) + 1e-5)


class WearModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = BatchScale()
        self.fc1, self.fc2, self.wear = nn.Linear(14, 64), nn.Linear(64, 64), nn.Linear(64, 1)

    def forward(self, x):
        h = nn.functional.elu(self.fc1(self.scale(x)))
        return self.wear(nn.functional.elu(self.fc2(h)))


def measurements(n):
    x = torch.randn(n, 14) * torch.linspace(0.5, 6, 14) + torch.linspace(-3, 3, 14)
    z = (x - x.mean(0)) / x.std(0)
    return x, (z[:, :1] * z[:, 1:2] + z[:, 2:3].sin() + 0.5 * z[:, 3:4])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*measurements(1025)), batch_size=64, shuffle=True, drop_last=fixed)
    model = WearModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    history = []
    with watch(model) as dbg:
        for epoch in range(10):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                history.append(loss.item())
                dbg.record_loss(history[-1])
    return {"loss": history}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.5
