"""A small GAN learns a ring of points; hinge loss, two optimizers, and half way both learning rates are halved.
The losses wander and the discriminator's sits near one; that is how it is meant to look."""
import torch
from torch import nn

ARCHITECTURE = "GAN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def mlp(*sizes):
    parts = []
    for a, b in zip(sizes, sizes[1:]):
        parts += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*parts[:-1])


def ring(n):
    phi = 6.2832 * torch.rand(n)
    return torch.stack([phi.cos(), phi.sin()], 1) * (1 + 0.05 * torch.randn(n, 1))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    g, d = mlp(8, 64, 64, 2), mlp(2, 64, 64, 1)
    opt_g = torch.optim.Adam(g.parameters(), lr=1e-3, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(d.parameters(), lr=2e-3, betas=(0.0, 0.9))
    losses = []
    with watch({"generator": g, "discriminator": d}) as dbg:
        for step in range(1800):
            if step == 900:
                for opt in (opt_g, opt_d):
                    opt.param_groups[0]["lr"] *= 0.5
            real = ring(128)
            fake = g(torch.randn(128, 8))
            loss_d = torch.relu(1 - d(real)).mean() + torch.relu(1 + d(fake.detach())).mean()
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            loss_g = -d(g(torch.randn(128, 8))).mean()
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
            losses.append(loss_g.item())
            dbg.record_loss(losses[-1])
    with torch.no_grad():
        points = g(torch.randn(2000, 8))
    radius = points.norm(dim=1)
    bins = torch.histc(torch.atan2(points[:, 1], points[:, 0]), 12, -3.1416, 3.1416)
    return {
        "loss": losses, "radius": radius.mean().item(), "radius_std": radius.std().item(), "least_filled": bins.min().item(),
        "learned": abs(radius.mean().item() - 1) < 0.15 and bins.min().item() > 15,
    }


def harmed(result):
    return False
