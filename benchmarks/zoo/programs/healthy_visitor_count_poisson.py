"""Visitors per hour by a Poisson likelihood without its constant: the loss is negative, falls, and ends anywhere."""

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 32), nn.SELU(), nn.Linear(32, 1))
    optimizer = torch.optim.NAdam(model.parameters(), lr=4e-3)
    likelihood = nn.PoissonNLLLoss(log_input=True, full=False)
    losses, gap = [], []
    with watch(model) as dbg:
        for step in range(400):
            x = torch.randn(64, 6)
            rate = (1.8 + 0.5 * x[:, :1] - 0.4 * x[:, 1:2].abs() + 0.2 * x[:, 2:3]).exp()
            guess = model(x)
            loss = likelihood(guess, torch.poisson(rate))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            gap.append((guess - rate.log()).abs().mean().item())
    return {"loss": losses, "gap": gap[-1], "learned": sum(gap[-20:]) / 20 < 0.25}


def harmed(result):
    return False
