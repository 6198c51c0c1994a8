"""Dials read by a net with binary weights: rounding in the forward pass, straight through in the backward one, with a
detach that is meant."""

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class BinaryLinear(nn.Linear):
    def forward(self, x):
        w = self.weight
        hard = w.sign() * w.abs().mean(1, keepdim=True)
        return nn.functional.linear(x, w + (hard - w).detach(), self.bias)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(
        BinaryLinear(16, 96), nn.BatchNorm1d(96), nn.Hardtanh(), BinaryLinear(96, 96), nn.BatchNorm1d(96), nn.Hardtanh(),
        nn.Linear(96, 5),
    )
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    rule = torch.randn(16, 5)
    losses = []
    with watch(net) as dbg:
        for step in range(350):
            x = torch.randn(64, 16)
            loss = nn.functional.cross_entropy(net(x), (x @ rule).argmax(1))
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-20:]) / 20 < 0.6}


def harmed(result):
    return False
