"""Forces on particles: the loss is a sum over all particles and components on purpose, the rate is tiny to match."""

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class PairForce(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.pair = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )

    def forward(self, place):
        gap = place[:, :, None] - place[:, None]
        return self.pair(gap).sum(2)


def box(n, particles=6):
    place = 2 * torch.rand(n, particles, 2) - 1
    gap = place[:, :, None] - place[:, None]
    force = (gap * torch.exp(-3 * gap.square().sum(-1, keepdim=True))).sum(2)
    return place, 10 * force


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = PairForce()
    optimizer = torch.optim.SGD(model.parameters(), lr=5e-6, momentum=0.9)
    losses, relative = [], []
    with watch(model) as dbg:
        for step in range(500):
            place, force = box(32)
            loss = (model(place) - force).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            relative.append(loss.item() / force.square().sum().item())
    last = sum(relative[-20:]) / 20
    return {"loss": losses, "relative": relative, "last": last, "learned": last < 0.25}


def harmed(result):
    return False
