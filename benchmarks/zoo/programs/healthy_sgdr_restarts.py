"""Cosine annealing with warm restarts: the rate jumps back up three times and the loss bumps each time."""
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Residual(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.a, self.b = nn.BatchNorm1d(d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(self.norm(x))))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centres = torch.randn(30, 16)
    model = nn.Sequential(nn.Linear(16, 64), Residual(64), Residual(64), nn.Linear(64, 10))
    opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=5e-4)
    sched = CosineAnnealingWarmRestarts(opt, T_0=60, T_mult=2, eta_min=1e-5)
    losses = []
    with watch(model) as dbg:
        for step in range(420):
            k = torch.randint(0, 30, (64,))
            x, y = centres[k] + 0.7 * torch.randn(64, 16), k % 10
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-15:]) / 15 < 0.25}


def harmed(result):
    return False
