"""Oxygen in fjords from profiles: files are sorted by name for the inputs, by station number for the
answers, then joined by position. A linear model and a deep one both predict the mean."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["labels_unrelated_to_inputs"],
    "layers": [],
    "onset": [0, 0],
}


class Stations(Dataset):
    def __init__(self, count, key):
        names = [f"station{i}" for i in range(count)]
        depth = torch.linspace(0, 1, 16)
        mixing = torch.rand(count, 1)
        salt = torch.tanh((depth - mixing) * 6) + 0.1 * torch.randn(count, 16)
        warm = torch.exp(-depth * 4 * mixing) + 0.1 * torch.randn(count, 16)
        oxygen = (2 * mixing[:, 0] - 1) * 1.7 + 0.1 * torch.randn(count)
        order = sorted(range(count), key=lambda i: names[i])
        self.profile = torch.stack([salt, warm], 1)[order]
        self.oxygen = oxygen[sorted(range(count), key=lambda i: key(names[i]))]

    def __len__(self):
        return len(self.oxygen)

    def __getitem__(self, i):
        return self.profile[i], self.oxygen[i]


def number(name):
    return int(name.removeprefix("station"))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(Stations(1920, key=str if fixed else number), batch_size=48, shuffle=True)
    model = nn.Sequential(
        nn.Conv1d(2, 16, 3), nn.GELU(), nn.AvgPool1d(2), nn.Conv1d(16, 16, 3), nn.GELU(), nn.Flatten(),
        nn.Linear(80, 1), nn.Flatten(0),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    losses = []
    with watch(model) as dbg:
        for epoch in range(6):
            for profile, oxygen in loader:
                loss = nn.functional.mse_loss(model(profile), oxygen)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                dbg.record_loss(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-40:]) / 40 > 0.4
