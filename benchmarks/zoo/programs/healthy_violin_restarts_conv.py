"""Recordings of violins, SGD with warm restarts: at each restart the rate jumps up a hundredfold and the loss with it."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(1, 12, 7, 2, 3), nn.Conv1d(12, 24, 5, 2, 2)
        self.norm_a, self.norm_b = nn.BatchNorm1d(12), nn.BatchNorm1d(24)
        self.maker = nn.Linear(24, 4)

    def forward(self, x):
        x = F.relu(self.norm_a(self.a(x)))
        return self.maker(F.relu(self.norm_b(self.b(x))).mean(2))


def notes(n):
    maker = torch.randint(0, 4, (n,))
    t = torch.arange(48.0)
    pitch = (0.3 + 0.35 * maker.float())[:, None]
    return (torch.sin(pitch * t + 6.28 * torch.rand(n, 1)) + 0.7 * torch.randn(n, 48))[:, None], maker


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = Conv()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 60, eta_min=2e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(240):
            x, maker = notes(40)
            loss = F.cross_entropy(net(x), maker)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-15:]) / 15 < 0.3}


def harmed(result):
    return False
