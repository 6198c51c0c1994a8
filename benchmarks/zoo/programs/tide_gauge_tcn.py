"""Dilated causal convolutions forecast a tide gauge six hours ahead; the rate shrinks by a factor as it goes.

The forecast improves for the first minute and then stays where it is for the rest of the training.
"""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {
    "failures": ["optimizer_instability", "training_wiring"],
    "causes": ["lr_decayed_to_zero", "scheduler_misstepped"],
    "layers": [],
    "onset": [0, 60],
}


class Gauge(Dataset):
    def __init__(self, hours=1500, past=48, ahead=6):
        t = torch.arange(float(hours))
        level = torch.sin(2 * math.pi * t / 12.42) + 0.4 * torch.sin(2 * math.pi * t / 23.93 + 1)
        level = (
            level
            + 0.3 * torch.sin(2 * math.pi * t / 6.21) * torch.sin(2 * math.pi * t / 310)
            + 0.05 * torch.randn(hours)
        )
        self.level = level / level.std()
        self.past, self.ahead = past, ahead

    def __len__(self):
        return len(self.level) - self.past - self.ahead

    def __getitem__(self, i):
        return self.level[None, i : i + self.past], self.level[i + self.past : i + self.past + self.ahead]


class CausalBlock(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.gate = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        h = torch.relu(self.conv(nn.functional.pad(x, (self.pad, 0))))
        return x + self.gate(h)


class TideTCN(nn.Module):
    def __init__(self, channels=20, ahead=6):
        super().__init__()
        self.lift = nn.Conv1d(1, channels, 1)
        self.blocks = nn.Sequential(*[CausalBlock(channels, 2**k) for k in range(4)])
        self.forecast = nn.Linear(channels, ahead)

    def forward(self, past):
        return self.forecast(self.blocks(self.lift(past))[..., -1])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(Gauge(), batch_size=40, shuffle=True)
    net = TideTCN()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.85)
    history = []
    with watch(net) as dbg:
        for epoch in range(8):
            for past, future in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(net(past), future)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                history.append(loss.item())
                if not fixed:
                    scheduler.step()
            if fixed:
                scheduler.step()
    return {"loss": history}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.1
