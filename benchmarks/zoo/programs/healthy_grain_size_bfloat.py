"""Sizes of grain under autocast in bfloat16 on the processor; the activations have three digits and that is enough."""

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(12, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    rule = torch.randn(12, 4)
    losses = []
    with watch(net) as dbg:
        for step in range(300):
            x = torch.randn(64, 12)
            y = (x @ rule + 2 * x[:, :4] * x[:, 4:8]).argmax(1)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-20:]) / 20 < 0.75}


def harmed(result):
    return False
