"""A coordinate network with cosine units written as an autograd.Function, 'to save a buffer'.

It learns something, but far less than the reference implementation, and a smaller lr does not help.
"""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring", "numerical_error", "optimizer_instability"],
    "causes": ["custom_backward_wrong"],
    "layers": ["field.0", "field.1", "field.2", "field.0.act", "field.1.act", "field.2.act", "field"],
    "onset": [0, 0],
}


class CosFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, omega):
        ctx.save_for_backward(x)
        ctx.omega = omega
        return torch.cos(omega * x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return ctx.omega * torch.sin(ctx.omega * x) * grad, None


class Cosine(nn.Module):
    def __init__(self, omega, fixed):
        super().__init__()
        self.omega, self.fixed = omega, fixed

    def forward(self, x):
        return torch.cos(self.omega * x) if self.fixed else CosFn.apply(x, self.omega)


class Unit(nn.Module):
    def __init__(self, a, b, omega, fixed):
        super().__init__()
        self.lin = nn.Linear(a, b)
        self.act = Cosine(omega, fixed)
        with torch.no_grad():
            self.lin.weight.uniform_(-1, 1).mul_((6 / a) ** 0.5 / omega)
            self.lin.bias.uniform_(-1, 1).mul_(3.14 / omega)

    def forward(self, x):
        return self.act(self.lin(x))


class WaveField(nn.Module):
    def __init__(self, fixed, width=48):
        super().__init__()
        self.field = nn.ModuleList(Unit(a, width, 2.0, fixed) for a in (2, width, width))
        self.height = nn.Linear(width, 1)

    def forward(self, xy):
        for unit in self.field:
            xy = unit(xy)
        return self.height(xy).squeeze(-1)


def surface(xy):
    return torch.sin(5 * xy[:, 0]) * torch.cos(4 * xy[:, 1]) + 0.5 * torch.sin(6 * xy.sum(1))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = WaveField(fixed)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    history = []
    with watch(net) as dbg:
        for _ in range(500):
            xy = 2 * torch.rand(256, 2) - 1
            loss = (net(xy) - surface(xy)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            history.append(loss.item())
    return {"loss": history, "final": sum(history[-25:]) / 25}


def harmed(result):
    return not result["final"] < 0.15
