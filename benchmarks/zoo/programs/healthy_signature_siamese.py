"""Siamese network for signatures with the contrastive loss: pairs of one writer pulled together,
others pushed to a margin."""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stroke = nn.Conv1d(2, 24, 5, padding=2)
        self.shape = nn.Conv1d(24, 32, 5, stride=2, padding=2)
        self.project = nn.Linear(32 * 12, 16)

    def forward(self, signature):
        h = F.leaky_relu(self.stroke(signature))
        h = F.leaky_relu(self.shape(h))
        return self.project(h.flatten(1))


class Office:
    def __init__(self, writers=40):
        self.style = torch.randn(writers, 2, 24).cumsum(2) / 3

    def sign(self, who):
        return self.style[who] + 0.5 * torch.randn(len(who), 2, 24)

    def pairs(self, n):
        first = torch.randint(0, len(self.style), (n,))
        same = torch.rand(n) < 0.5
        second = torch.where(same, first, (first + torch.randint(1, len(self.style), (n,))) % len(self.style))
        return self.sign(first), self.sign(second), same.float()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    office, net = Office(), Embedder()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(350):
            a, b, same = office.pairs(48)
            gap = (net(a) - net(b)).square().sum(1).add(1e-8).sqrt()
            loss = (same * gap.square() + (1 - same) * F.relu(2.0 - gap).square()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    a, b, same = office.pairs(1000)
    with torch.no_grad():
        gap = (net(a) - net(b)).norm(dim=1)
    accuracy = ((gap < 1.2) == (same > 0)).float().mean().item()
    return {"loss": losses, "accuracy": accuracy, "learned": accuracy > 0.85}


def harmed(result):
    return False
