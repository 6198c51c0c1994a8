"""Surge height at a tide gauge from pressure and wind; one daily file per update. Seven hundred files go
well, then the error jumps and the skill does not come back."""
from dataclasses import dataclass

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["data_anomaly", "optimizer_instability"],
    "causes": ["target_outlier"],
    "layers": [],
    "onset": [700, 700],
}


@dataclass
class Config:
    files: int = 1400
    rows: int = 48
    features: int = 12
    lr: float = 0.02
    momentum: float = 0.9


def surge(x, w):
    return torch.tanh(x @ w[0]) + 0.7 * torch.sin(x @ w[1]) + 0.3 * (x @ w[2])


class GaugeFiles:
    def __init__(self, cfg, drop_missing):
        self.cfg, self.drop_missing = cfg, drop_missing
        self.w = torch.randn(3, cfg.features) / cfg.features**0.5

    def read(self, day):
        x = torch.randn(self.cfg.rows, self.cfg.features)
        y = surge(x, self.w) + 0.1 * torch.randn(self.cfg.rows)
        if day == 700:
            y[9:21] = -999.0
        if self.drop_missing:
            good = y > -900
            x, y = x[good], y[good]
        return x, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    cfg = Config()
    files = GaugeFiles(cfg, drop_missing=fixed)
    net = nn.Sequential(
        nn.Linear(cfg.features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr, momentum=cfg.momentum)
    history = []
    with watch(net) as dbg:
        for day in range(cfg.files):
            x, y = files.read(day)
            opt.zero_grad()
            loss = (net(x).squeeze(1) - y).square().mean()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            history.append(loss.item())
    x = torch.randn(2000, cfg.features)
    y = surge(x, files.w)
    with torch.no_grad():
        skill = 1 - ((net(x).squeeze(1) - y).square().mean() / y.var()).item()
    return {"loss": history, "skill": skill}


def harmed(result):
    return not result["skill"] > 0.6
