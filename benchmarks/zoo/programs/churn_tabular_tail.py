"""Churn prediction from a table of 321 customers per month, own standardising layer instead of BatchNorm.

nan at the end of the first epoch.
"""
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["single_sample_statistics"],
    "layers": ["standardize"],
    "onset": [10, 10],
}


@dataclass
class Config:
    features: int = 10
    hidden: int = 32
    batch: int = 32
    epochs: int = 12
    lr: float = 0.05


class Standardize(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        x = (x - x.mean(0)) / (x.std(0) + 1e-5)
        return x * self.gain + self.shift


class ChurnNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.standardize = Standardize(cfg.features)
        self.hidden = nn.Linear(cfg.features, cfg.hidden)
        self.drop = nn.Dropout(0.1)
        self.score = nn.Linear(cfg.hidden, 1)

    def forward(self, x):
        x = self.standardize(x)
        x = self.drop(torch.relu(self.hidden(x)))
        return self.score(x)[:, 0]


def train(watch, fixed=False, seed=0):
    cfg = Config()
    torch.manual_seed(seed)
    x = torch.randn(321, cfg.features) * torch.linspace(0.5, 3, cfg.features) + 1
    w = torch.randn(cfg.features) / torch.linspace(0.5, 3, cfg.features)
    y = ((x - 1) @ w > 0).float()
    loader = DataLoader(TensorDataset(x, y), batch_size=cfg.batch, shuffle=True, drop_last=fixed)
    model = ChurnNet(cfg)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9, nesterov=True)
    bce = nn.BCEWithLogitsLoss()
    log = []
    with watch(model) as dbg:
        for epoch in range(cfg.epochs):
            for xb, yb in loader:
                loss = bce(model(xb), yb)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                log.append(loss.item())
    return {"loss": log}


def harmed(result):
    return not sum(result["loss"][-8:]) / 8 < 0.4
