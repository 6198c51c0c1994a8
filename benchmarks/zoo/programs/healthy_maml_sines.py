"""Few-shot sine regression by differentiating through two inner steps; tiny noisy tasks, so the meta loss swings by
a factor of ten from step to step."""
import torch
from torch import nn
from torch.func import functional_call

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def task():
    amp, phase = 0.5 + 2 * torch.rand(()), 3.14 * torch.rand(())
    draw = lambda n: (lambda x: (x, amp * torch.sin(x + phase)))(10 * torch.rand(n, 1) - 5)
    return draw(10), draw(10)


def adapt(net, params, support, rate, steps=2):
    for _ in range(steps):
        x, y = support
        inner = nn.functional.mse_loss(functional_call(net, params, (x,)), y)
        grads = torch.autograd.grad(inner, list(params.values()), create_graph=True)
        params = {k: p - rate * g for (k, p), g in zip(params.items(), grads)}
    return params


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(900):
            meta = 0.0
            for _ in range(3):
                support, query = task()
                fast = adapt(net, dict(net.named_parameters()), support, 0.03)
                meta = meta + nn.functional.mse_loss(functional_call(net, fast, (query[0],)), query[1]) / 3
            opt.zero_grad()
            meta.backward()
            opt.step()
            losses.append(meta.item())
            dbg.record_loss(losses[-1])
    first, last = sum(losses[:30]) / 30, sum(losses[-100:]) / 100
    return {"loss": losses, "first": first, "last": last, "learned": last < 0.5 * first}


def harmed(result):
    return False
