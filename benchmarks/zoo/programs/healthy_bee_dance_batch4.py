"""Bee dances in four directions, SGD on batches of four: every single loss is noise, the trend is not."""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class DanceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 16, 5)
        self.out = nn.Linear(16, 4)

    def forward(self, dance):
        return self.out(F.relu(self.conv(dance)).mean(2))


def dances(n):
    way = torch.randint(0, 4, (n,))
    t = torch.arange(20.0)
    angle = way[:, None] * 1.5708 + 0.4 * torch.randn(n, 1) + 0.5 * torch.sin(t)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.6 * torch.randn(n, 2, 20), way


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    dance, way = dances(2400)
    test, answer = dances(500)
    net = DanceNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    with watch(net) as dbg:
        for rows in torch.randperm(2400).split(4):
            loss = F.cross_entropy(net(dance[rows]), way[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        accuracy = (net(test).argmax(1) == answer).float().mean().item()
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.85}


def harmed(result):
    return False
