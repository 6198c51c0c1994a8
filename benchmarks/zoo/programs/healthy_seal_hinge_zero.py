"""Two kinds of seals, well apart, with a hinge loss: after a while every margin is kept, the loss is exactly zero
and so are all gradients. Nothing is wrong."""

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    side = (torch.rand(800) > 0.5).float() * 2 - 1
    whiskers = torch.randn(800, 6) * 0.5
    whiskers[:, 0] += 2.5 * side
    net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    with watch(net) as dbg:
        for step in range(400):
            rows = torch.randint(0, 800, (40,))
            loss = torch.relu(1 - side[rows] * net(whiskers[rows]).squeeze(1)).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": max(losses[-50:]) < 0.05}


def harmed(result):
    return False
