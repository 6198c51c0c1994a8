"""Answers to a survey: four in ten are given at random, so the loss stops early at a high plateau, and must."""

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rule = torch.randn(9, 3)
    net = nn.Sequential(nn.Linear(9, 32), nn.GELU(), nn.Linear(32, 3))
    opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
    losses = []

    def ask(n):
        x = torch.randn(n, 9)
        y = (x @ rule).argmax(1)
        return x, torch.where(torch.rand(n) < 0.4, torch.randint(0, 3, (n,)), y)

    with watch(net) as dbg:
        for step in range(450):
            x, y = ask(64)
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    x, y = ask(2000)
    right = (net(x).argmax(1) == y).float().mean().item()
    return {"loss": losses, "right": right, "learned": right > 0.66}


def harmed(result):
    return False
