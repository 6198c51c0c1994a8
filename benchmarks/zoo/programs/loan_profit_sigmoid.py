"""Profit or loss of loans, standardised. The output block was taken over from the default model that
predicts a probability. Losses are never predicted, big profits neither."""
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["objective_mismatch", "saturated_activations", "optimizer_instability"],
    "causes": ["output_range_mismatch"],
    "layers": ["output", "output.last", "output.link"],
    "onset": [0, 60],
}


@dataclass
class LoanConfig:
    features: int = 10
    width: int = 48
    link: str = "sigmoid"
    epochs: int = 12


class Output(nn.Module):
    links = {"sigmoid": nn.Sigmoid, "identity": nn.Identity}

    def __init__(self, width, link):
        super().__init__()
        self.last = nn.Linear(width, 1)
        self.link = self.links[link]()

    def forward(self, h):
        return self.link(self.last(h))


class ProfitModel(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.enter = nn.Linear(c.features, c.width)
        self.cross = nn.Linear(c.width, c.width)
        self.output = Output(c.width, c.link)

    def forward(self, x):
        h = torch.selu(self.enter(x))
        return self.output(h + torch.selu(self.cross(h)))


def loans(n, features):
    x = torch.randn(n, features)
    profit = x[:, :1] + x[:, 1:2] * x[:, 2:3] - x[:, 3:4].clamp(min=0)
    return x, (profit - profit.mean()) / profit.std()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    config = LoanConfig(link="identity" if fixed else "sigmoid")
    loader = DataLoader(TensorDataset(*loans(2560, config.features)), batch_size=64, shuffle=True)
    model = ProfitModel(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(config.epochs):
            for x, profit in loader:
                loss = nn.functional.mse_loss(model(x), profit)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.3
