"""Outlines of vases by a GAN with spectral norm and the hinge loss: the losses of both sides go up
and down for the whole run, while the outlines get better."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

ARCHITECTURE = "GAN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}

HEIGHT = torch.linspace(0, 1, 24)


def vases(n):
    belly, neck, foot = (torch.rand(n, 1) for _ in range(3))
    shape = 0.5 + 0.8 * belly * torch.sin(3.1416 * HEIGHT) - 0.5 * neck * HEIGHT**4
    return 2 * (shape - 0.3 * foot * (1 - HEIGHT) ** 6) - 1.2


def potter():
    return nn.Sequential(
        nn.Linear(6, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
        nn.Linear(64, 24),
    )  # fmt: skip


def judge():
    return nn.Sequential(
        spectral_norm(nn.Linear(24, 64)), nn.LeakyReLU(0.1),
        spectral_norm(nn.Linear(64, 64)), nn.LeakyReLU(0.1),
        spectral_norm(nn.Linear(64, 1)),
    )  # fmt: skip


def gap(made, true):
    return ((made.mean(0) - true.mean(0)).abs() + (made.std(0) - true.std(0)).abs()).mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    G, D = potter(), judge()
    opt_g = torch.optim.Adam(G.parameters(), lr=5e-4, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.0, 0.9))
    losses = []
    with torch.no_grad():
        before = gap(G(torch.randn(500, 6)), vases(500))
    with watch({"G": G, "D": D}) as dbg:
        for _ in range(500):
            fake = G(torch.randn(64, 6))
            d_loss = F.relu(1 - D(vases(64))).mean() + F.relu(1 + D(fake.detach())).mean()
            opt_d.zero_grad()
            d_loss.backward()
            opt_d.step()
            g_loss = -D(fake).mean()
            opt_g.zero_grad()
            g_loss.backward()
            opt_g.step()
            dbg.record_loss(g_loss.item(), "G")
            dbg.record_loss(d_loss.item(), "D")
            losses.append(g_loss.item())
    with torch.no_grad():
        after = gap(G(torch.randn(500, 6)), vases(500))
    return {"loss": losses, "before": before, "after": after, "learned": after < 0.5 * before}


def harmed(result):
    return False
