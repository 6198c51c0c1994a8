"""Two players of a generative game on points of a ring, in the original form of its loss. One wins within a few dozen
rounds and the other one stops where it stood."""
import math

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "GAN"
TRUTH = {
    "failures": ["vanishing_gradients", "representation_collapse"],
    "causes": ["discriminator_overpowers"],
    "layers": [],
    "onset": [0, 80],
}


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def ring(n):
    angle = torch.rand(n) * 2 * math.pi
    return torch.stack([angle.cos(), angle.sin()], 1) * 1.0 + 4.0 + 0.15 * torch.randn(n, 2)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    maker, critic = mlp(4, 48, 48, 2), mlp(2, 96, 96, 1)
    rounds, rate = (2, 2e-3) if fixed else (6, 4e-3)
    opt_m = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=rate, betas=(0.5, 0.9))
    losses = []
    with watch({"maker": maker, "critic": critic}) as dbg:
        for _ in range(280):
            for _ in range(rounds):
                real, fake = ring(64), maker(torch.randn(64, 4)).detach()
                loss_c = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
                opt_c.zero_grad()
                loss_c.backward()
                opt_c.step()
            score = critic(maker(torch.randn(64, 4)))
            loss_m = F.softplus(-score).mean() if fixed else F.logsigmoid(-score).mean()
            opt_m.zero_grad()
            loss_m.backward()
            opt_m.step()
            dbg.record_loss(loss_m.item(), name="maker")
            dbg.record_loss(loss_c.item(), name="critic")
            losses.append(loss_c.item())
    with torch.no_grad():
        made = maker(torch.randn(500, 4))
    return {"critic": losses, "distance": ((made - 4).norm(dim=1) - 1).abs().mean().item()}


def harmed(result):
    return result["distance"] > 1.0
