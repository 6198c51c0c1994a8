"""Residual forecaster: the next day is today's profile plus a learned correction (pre-activation blocks).

It is clearly worse than repeating today's profile, which the skip connection alone should give.
"""
import torch
from torch import nn

ARCHITECTURE = "ResNet"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["inplace_on_skip_path"],
    "layers": ["blocks.0", "blocks.0.branch", "blocks.0.branch.0", "blocks.1", "blocks.1.branch", "blocks.1.branch.0", "blocks.2", "blocks.2.branch", "blocks.2.branch.0", "blocks"],
    "onset": [0, 0],
}


class PreActBlock(nn.Module):
    def __init__(self, width, hidden, inplace):
        super().__init__()
        self.branch = nn.Sequential(
            nn.ReLU(inplace=inplace), nn.Linear(width, hidden), nn.ReLU(inplace=inplace), nn.Linear(hidden, width)
        )

    def forward(self, x):
        out = self.branch(x)
        return x + out


class Forecaster(nn.Module):
    def __init__(self, width=24, inplace=True):
        super().__init__()
        self.blocks = nn.Sequential(*[PreActBlock(width, 48, inplace) for _ in range(3)])

    def forward(self, day):
        return self.blocks(day)


def days(n):
    hour = torch.arange(24) / 24 * 2 * torch.pi
    phase = 6.28 * torch.rand(n, 1)
    amp = 0.5 + torch.rand(n, 1)
    today = amp * torch.sin(hour + phase) + 0.4 * torch.randn(n, 24)
    tomorrow = today + 0.3 * torch.sin(2 * hour + phase)
    return today, tomorrow


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    today, tomorrow = days(4000)
    net = Forecaster(inplace=not fixed)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(700):
            rows = torch.randint(0, 4000, (64,))
            loss = nn.functional.mse_loss(net(today[rows]), tomorrow[rows])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    return {"loss": losses, "last": sum(losses[-30:]) / 30}


def harmed(result):
    return result["last"] > 0.03
