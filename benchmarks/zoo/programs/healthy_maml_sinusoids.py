"""Meta-learning of sine curves: inner steps by functional calls on copies of the weights, one outer step per batch of
tasks. The outer loss is noisy and falls slowly."""
import torch
from torch import nn
from torch.func import functional_call

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def task():
    amplitude, phase = 0.5 + 2 * torch.rand(1), 3.14 * torch.rand(1)

    def draw(n):
        x = torch.rand(n, 1) * 6 - 3
        return x, amplitude * torch.sin(x + phase)

    return draw


def adapt(model, weights, x, y, rate, create_graph):
    loss = nn.functional.mse_loss(functional_call(model, weights, (x,)), y)
    slopes = torch.autograd.grad(loss, tuple(weights.values()), create_graph=create_graph)
    return {name: w - rate * s for (name, w), s in zip(weights.items(), slopes)}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(400):
            total = 0.0
            for _ in range(4):
                draw = task()
                weights = dict(model.named_parameters())
                for _ in range(2):
                    weights = adapt(model, weights, *draw(10), rate=0.05, create_graph=True)
                x, y = draw(10)
                total = total + nn.functional.mse_loss(functional_call(model, weights, (x,)), y)
            loss = total / 4
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    first, last = sum(losses[:20]) / 20, sum(losses[-40:]) / 40
    return {"loss": losses, "first": first, "last": last, "learned": last < 0.4 * first}


def harmed(result):
    return False
