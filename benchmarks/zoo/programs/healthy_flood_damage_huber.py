"""Flood damage with Student noise: Huber loss, a batch every now and then is far worse than its
neighbours and does no harm."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def floods(n, noise=True):
    x = torch.randn(n, 6)
    damage = 1.5 * x[:, 0] + x[:, 1].relu() * x[:, 2] - torch.sin(2 * x[:, 3])
    tail = torch.distributions.StudentT(1.5).sample((n,)) if noise else 0.0
    return x, damage + 0.5 * tail, damage


class DamageNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, damage, _ = floods(3200)
    loader = DataLoader(TensorDataset(x, damage), batch_size=32, shuffle=True)
    model = DamageNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    huber = nn.HuberLoss(delta=1.0)
    losses = []
    with watch(model) as dbg:
        for epoch in range(5):
            for batch, target in loader:
                optimizer.zero_grad()
                loss = huber(model(batch), target)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    test, _, clean = floods(2000, noise=False)
    with torch.no_grad():
        error = nn.functional.mse_loss(model(test), clean).item()
    return {"loss": losses, "error": error, "learned": error < 0.15 * clean.var().item()}


def harmed(result):
    return False
