"""Scans of two clinics: a head guesses the clinic and its gradient is reversed on the way back, so one loss is meant to
stay at chance."""

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -0.3 * grad


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.scan = nn.Sequential(nn.Linear(14, 40), nn.ReLU(), nn.Linear(40, 24), nn.ReLU())
        self.finding, self.clinic = nn.Linear(24, 3), nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 2))

    def forward(self, x):
        h = self.scan(x)
        return self.finding(h), self.clinic(Reverse.apply(h))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = TwoHeads()
    rule = torch.randn(10, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    with watch(model) as dbg:
        for step in range(500):
            where = torch.randint(0, 2, (64,))
            x = torch.randn(64, 14)
            y = (x[:, :10] @ rule).argmax(1)
            x[:, 10:] += where[:, None]
            finding, clinic = model(x)
            a, b = nn.functional.cross_entropy(finding, y), nn.functional.cross_entropy(clinic, where)
            optimizer.zero_grad()
            (a + b).backward()
            optimizer.step()
            dbg.record_loss(a.item(), "finding")
            dbg.record_loss(b.item(), "clinic")
            losses.append(a.item())
    return {"loss": losses, "learned": sum(losses[-20:]) / 20 < 0.45}


def harmed(result):
    return False
