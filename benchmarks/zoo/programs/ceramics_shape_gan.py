"""Outlines of pots as two numbers, eight traditions on a ring. The generator is updated many times for
each update of the critic to 'help it along'. All pots drawn are the same pot."""
import math

import torch
from torch import nn

TRUTH = {
    "failures": ["representation_collapse"],
    "causes": ["mode_collapse"],
    "layers": ["potter", "potter.0", "potter.2", "potter.4"],
    "onset": [0, 250],
}


def traditions(n):
    angle = 2 * math.pi * torch.randint(0, 8, (n,)) / 8
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.08 * torch.randn(n, 2)


def mlp(inputs, outputs, act):
    return nn.Sequential(nn.Linear(inputs, 64), act, nn.Linear(64, 64), act, nn.Linear(64, outputs))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    potter, expert = mlp(4, 2, nn.ReLU()), mlp(2, 1, nn.LeakyReLU(0.2))
    for_potter = torch.optim.Adam(potter.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for_expert = torch.optim.Adam(expert.parameters(), lr=2e-3, betas=(0.5, 0.9))
    bce = nn.BCEWithLogitsLoss()
    turns = 1 if fixed else 8
    losses, width = [], []
    with watch({"potter": potter, "expert": expert}) as dbg:
        for step in range(500 // turns):
            for_expert.zero_grad()
            real, drawn = expert(traditions(128)), expert(potter(torch.randn(128, 4)).detach())
            loss = bce(real, torch.ones_like(real)) + bce(drawn, torch.zeros_like(drawn))
            loss.backward()
            for_expert.step()
            for _ in range(turns):
                for_potter.zero_grad()
                pots = potter(torch.randn(128, 4))
                judged = expert(pots)
                bce(judged, torch.ones_like(judged)).backward()
                for_potter.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            width.append(pots.detach().std(0).mean().item())
    return {"loss": losses, "width": width}


def harmed(result):
    return sum(result["width"][-15:]) / 15 < 0.25
