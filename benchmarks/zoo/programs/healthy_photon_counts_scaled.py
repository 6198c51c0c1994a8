"""Photon rates in physical units: the loss is about 1e-6 and so are all gradients; Adam does not mind."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
UNIT = 1e-6


class RateNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.sensor = nn.Linear(9, 64)
        self.mix = nn.Linear(64, 64)
        self.rate = nn.Linear(64, 1)

    def forward(self, x):
        return self.rate(torch.relu(self.mix(torch.relu(self.sensor(x))))).squeeze(-1)


def readings(n):
    x = torch.randn(n, 9)
    rate = torch.sin(x[:, 0]) + x[:, 1] * x[:, 2] - 0.5 * x[:, 3].abs()
    return x, (rate - rate.mean()) / rate.std()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*readings(4000)), batch_size=64, shuffle=True)
    net = RateNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, eps=1e-15)
    losses = []
    with watch(net) as dbg:
        for epoch in range(6):
            for x, rate in loader:
                optimizer.zero_grad()
                loss = UNIT * (net(x) - rate).square().mean()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    last = sum(losses[-30:]) / 30
    return {"loss": losses, "last": last, "learned": last < 0.15 * losses[0]}


def harmed(result):
    return False
