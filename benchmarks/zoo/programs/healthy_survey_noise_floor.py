"""Answers of a survey: thirty percent are random. The loss reaches its floor within a hundred steps and stays there."""

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def people(n, weights):
    x = torch.randn(n, 8)
    truth = (x @ weights).argmax(1)
    told = torch.where(torch.rand(n) < 0.3, torch.randint(0, 3, (n,)), truth)
    return x, told, truth


class Survey(nn.Module):
    def __init__(self):
        super().__init__()
        self.profile = nn.Linear(8, 16)
        self.answer = nn.Linear(16, 3)

    def forward(self, x):
        return self.answer(nn.functional.silu(self.profile(x)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    weights = torch.randn(8, 3)
    net = Survey()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    with watch(net) as dbg:
        for step in range(600):
            x, told, _ = people(256, weights)
            loss = nn.functional.cross_entropy(net(x), told)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    x, _, truth = people(2000, weights)
    with torch.no_grad():
        accuracy = (net(x).argmax(1) == truth).float().mean().item()
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.93}


def harmed(result):
    return False
