"""WGAN with gradient penalty, four critic steps per generator step. Losses are negative, unbounded and drift."""
import torch
from torch import nn
from torch.autograd import grad

ARCHITECTURE = "GAN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def mlp(i, o, act):
    return nn.Sequential(nn.Linear(i, 64), act, nn.Linear(64, 64), act, nn.Linear(64, o))


def circle(n):
    a = 3.1416 * 2 * torch.rand(n)
    return torch.stack([a.cos() + 1.5, a.sin()], 1) + 0.05 * torch.randn(n, 2)


def penalty(critic, real, fake):
    e = torch.rand(len(real), 1)
    mix = (e * real + (1 - e) * fake).requires_grad_(True)
    g, = grad(critic(mix).sum(), mix, create_graph=True)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


def energy(a, b):
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    G, C = mlp(4, 2, nn.ReLU()), mlp(2, 1, nn.LeakyReLU(0.2))
    og = torch.optim.Adam(G.parameters(), lr=3e-4, betas=(0.5, 0.9))
    oc = torch.optim.Adam(C.parameters(), lr=1e-3, betas=(0.5, 0.9))
    start = energy(G(torch.randn(800, 4)).detach(), circle(800))
    lg, lc = [], []
    with watch({"G": G, "C": C}) as dbg:
        for it in range(450):
            for _ in range(4):
                real = circle(96)
                fake = G(torch.randn(96, 4)).detach()
                loss_c = C(fake).mean() - C(real).mean() + 2 * penalty(C, real, fake)
                oc.zero_grad()
                loss_c.backward()
                oc.step()
            loss_g = -C(G(torch.randn(96, 4))).mean()
            og.zero_grad()
            loss_g.backward()
            og.step()
            dbg.record_loss(loss_g.item(), "generator")
            dbg.record_loss(loss_c.item(), "critic")
            lg.append(loss_g.item())
            lc.append(loss_c.item())
    end = energy(G(torch.randn(800, 4)).detach(), circle(800))
    return {"g": lg, "c": lc, "start": start, "end": end, "learned": end < 0.2 * start}


def harmed(result):
    return False
