"""Cargo in thousands, an error summed over a large batch: gradient norms in the ten thousands, and a rate that was chosen
for them."""

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Linear(40, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(500):
            x = torch.randn(256, 5)
            cargo = 20 * (x[:, 0] * 2 + x[:, 1] * x[:, 2]) + 5
            loss = (model(x).squeeze(1) - cargo).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-20:]) < 0.45 * sum(losses[:20])}


def harmed(result):
    return False
