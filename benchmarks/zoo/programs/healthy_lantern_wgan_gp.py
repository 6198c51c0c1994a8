"""Wasserstein GAN with gradient penalty on a ring of points; the critic's loss is negative and unbounded by design, the
penalty differentiates twice."""

import math

import torch
from torch import nn

ARCHITECTURE = "GAN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def ring(n):
    a = 2 * math.pi * torch.rand(n)
    return torch.stack([a.cos(), a.sin()], 1) + 0.05 * torch.randn(n, 2)


def net(i, o):
    return nn.Sequential(nn.Linear(i, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, o))


def penalty(critic, real, fake):
    t = torch.rand(len(real), 1)
    mixed = (t * real + (1 - t) * fake).requires_grad_()
    (grad,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return ((grad.norm(dim=1) - 1) ** 2).mean()


def radius(points):
    return (points.norm(dim=1) - 1).abs().mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    G, C = net(4, 2), net(2, 1)
    og = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9))
    oc = torch.optim.Adam(C.parameters(), lr=4e-3, betas=(0.0, 0.9))
    losses = []
    with watch({"G": G, "C": C}) as dbg:
        before = radius(G(torch.randn(500, 4)).detach())
        for step in range(220):
            for _ in range(3):
                real, fake = ring(64), G(torch.randn(64, 4)).detach()
                loss = C(fake).mean() - C(real).mean() + 5 * penalty(C, real, fake)
                oc.zero_grad()
                loss.backward()
                oc.step()
            wish = -C(G(torch.randn(64, 4))).mean()
            og.zero_grad()
            wish.backward()
            og.step()
            dbg.record_loss(wish.item(), "generator")
            dbg.record_loss(loss.item(), "critic")
            losses.append(wish.item())
        after = radius(G(torch.randn(500, 4)).detach())
    return {"loss": losses, "before": before, "after": after, "learned": after < 0.6 * before}


def harmed(result):
    return False
