"""Fuel of ships in tonnes (around 40): the loss begins in the thousands, the head's bias gets there,
Adam with a tuned rate."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def journeys(n):
    x = torch.randn(n, 7)
    fuel = 40 + 8 * x[:, 0] + 5 * x[:, 1] * x[:, 2] + 4 * torch.sin(2 * x[:, 3])
    return x, fuel[:, None] + 0.5 * torch.randn(n, 1)


class FuelNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.hull = nn.Linear(7, width)
        self.norm = nn.LayerNorm(width)
        self.engine = nn.Linear(width, width)
        self.fuel = nn.Linear(width, 1)

    def forward(self, x):
        h = nn.functional.gelu(self.norm(self.hull(x)))
        return self.fuel(nn.functional.gelu(self.engine(h)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*journeys(3000)), batch_size=50, shuffle=True)
    net = FuelNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    losses = []
    with watch(net) as dbg:
        for epoch in range(8):
            for x, fuel in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(net(x), fuel)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            scheduler.step()
    last = sum(losses[-30:]) / 30
    return {"loss": losses, "last": last, "learned": last < 3.0 and losses[0] > 1000}


def harmed(result):
    return False
