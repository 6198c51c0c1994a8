"""Next day's level of forty gauges of a river basin, which hear from their neighbours; every step
is another cut of the map. In the third hundred all levels become NaN."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "GNN"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["division_by_zero"],
    "layers": ["rounds.0"],
    "onset": [203, 203],
}


class Round(nn.Module):
    """Mean of the neighbours' messages, added to what the gauge knows itself."""

    def __init__(self, width, least):
        super().__init__()
        self.own = nn.Linear(width, width)
        self.heard = nn.Linear(width, width)
        self.least = least

    def forward(self, h, links):
        count = links.sum(1, keepdim=True).clamp(min=self.least)
        return F.relu(self.own(h) + self.heard(links @ h / count))


class BasinNet(nn.Module):
    def __init__(self, least, width=24):
        super().__init__()
        self.read = nn.Linear(3, width)
        self.rounds = nn.ModuleList(Round(width, least) for _ in range(2))
        self.level = nn.Linear(width, 1)

    def forward(self, gauges, links):
        h = self.read(gauges)
        for step in self.rounds:
            h = step(h, links)
        return self.level(h)[:, 0]


def cut(number, n=40):
    ring = torch.eye(n).roll(1, 0)
    links = ring + (torch.rand(n, n) < 0.04).float()
    links = ((links + links.T) > 0).float().fill_diagonal_(0)
    if number == 203:
        links[17] = links[:, 17] = 0  # a lake without outlet
    gauges = torch.randn(n, 3)
    mean = links @ gauges / links.sum(1, keepdim=True).clamp(min=1)
    tomorrow = gauges[:, 0] + 1.5 * mean[:, 1] + torch.tanh(mean[:, 0] * 2)
    return gauges, links, tomorrow / 1.5


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = BasinNet(least=1.0 if fixed else 0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses = []
    with watch(model) as dbg:
        for number in range(270):
            gauges, links, tomorrow = cut(number)
            loss = F.mse_loss(model(gauges, links), tomorrow)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.2
