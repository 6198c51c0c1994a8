"""Counts per microsecond: the target is of the order of a millionth, so are loss and gradients; Adam does not mind."""

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
UNIT = 1e-4


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
        self.rate = nn.Linear(32, 1)

    def forward(self, x):
        return UNIT * self.rate(self.layers(x))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-16)
    losses = []
    with watch(model) as dbg:
        for step in range(400):
            x = torch.randn(64, 4)
            y = UNIT * (x[:, :1] * x[:, 1:2] + x[:, 2:3].sin())
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-20:]) < 0.2 * sum(losses[:20])}


def harmed(result):
    return False
