"""A heat rod solved by a small network on its differential equation: Adam first, then L-BFGS with closures. Within
one L-BFGS step the loss falls by orders, and gradients end near nothing."""
import math

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Rod(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, x):
        return x * (1 - x) * self.net(x)


def residual(model, x):
    x = x.requires_grad_(True)
    u = model(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), x, create_graph=True)
    return (ddu + math.pi**2 * torch.sin(math.pi * x)).square().mean()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Rod()
    losses = []
    with watch(model) as dbg:
        opt = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(150):
            loss = residual(model, torch.rand(48, 1))
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
        grid = torch.linspace(0, 1, 48)[:, None]
        opt = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=8, line_search_fn="strong_wolfe")
        for _ in range(25):

            def closure():
                opt.zero_grad()
                value = residual(model, grid.clone())
                value.backward()
                return value

            loss = opt.step(closure)
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    x = torch.linspace(0, 1, 101)[:, None]
    with torch.no_grad():
        error = (model(x) - torch.sin(math.pi * x)).abs().max().item()
    return {"loss": losses, "error": error, "learned": error < 0.02}


def harmed(result):
    return False
