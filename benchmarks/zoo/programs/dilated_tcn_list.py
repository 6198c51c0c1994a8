"""Temporal convolution net for a counting task in long series; more layers do not help at all."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["unregistered_modules", "parameters_not_in_optimizer"],
    "layers": [],
    "onset": [0, 0],
}


class DilatedNet(nn.Module):
    def __init__(self, channels=16, depth=5, keep=list):
        super().__init__()
        self.inlet = nn.Conv1d(2, channels, 1)
        self.stages = keep([nn.Conv1d(channels, channels, 3, dilation=2**i, padding=2**i) for i in range(depth)])
        self.outlet = nn.Conv1d(channels, 1, 1)

    def forward(self, x):
        h = F.relu(self.inlet(x))
        for conv in self.stages:
            h = h + F.relu(conv(h))
        return self.outlet(h.mean(2, keepdim=True)).flatten()


def series(n, length=64):
    x = torch.randn(n, 2, length)
    up = (x[:, 0, 1:] > 0) & (x[:, 0, :-1] < 0)
    strong = x[:, 1, 1:] > x[:, 1, :-1]
    y = (up & strong).float().sum(1)
    return x, (y - y.mean()) / y.std()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = series(2048)
    net = DilatedNet(keep=nn.ModuleList if fixed else list)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 6e-3, total_steps=832)
    losses = []
    with watch(net) as dbg:
        for epoch in range(13):
            for rows in torch.randperm(2048).split(32):
                loss = F.mse_loss(net(x[rows]), y[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                sched.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.65
