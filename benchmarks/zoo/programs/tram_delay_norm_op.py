"""Tram delays; a root-mean-square normalisation written as an autograd function treats its scale as constant...
and loses the inverse on the way back."""
import torch
from torch import nn

TRUTH = {"failures": ["numerical_error", "training_wiring"], "causes": ["custom_backward_wrong"], "layers": ["levels.0", "levels.1", "levels.2", "levels.0.line", "levels.1.line", "levels.2.line"], "onset": [0, 0]}


class Rms(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        size = x.pow(2).mean(-1, keepdim=True).add(1e-6).sqrt()
        ctx.save_for_backward(x, weight, size)
        return x / size * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight, size = ctx.saved_tensors
        inner = (grad * weight * x).mean(-1, keepdim=True)
        return -(grad * weight) * size + x * inner, (grad * x / size).flatten(0, -2).sum(0)


class RightRms(Rms):
    @staticmethod
    def backward(ctx, grad):
        x, weight, size = ctx.saved_tensors
        inner = (grad * weight * x).mean(-1, keepdim=True)
        return grad * weight / size - x * inner / size**3, (grad * x / size).flatten(0, -2).sum(0)


class Level(nn.Module):
    def __init__(self, i, o, op):
        super().__init__()
        self.line, self.scale, self.op = nn.Linear(i, o), nn.Parameter(torch.ones(o)), op

    def forward(self, x):
        return torch.relu(self.op.apply(self.line(x), self.scale))


class Tram(nn.Module):
    def __init__(self, op):
        super().__init__()
        self.levels = nn.Sequential(Level(6, 48, op), Level(48, 48, op), Level(48, 48, op))
        self.delay = nn.Linear(48, 1)

    def forward(self, x):
        return self.delay(self.levels(x))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(900, 6)
    y = torch.sin(2 * x[:, :1]) * x[:, 1:2]
    model = Tram(RightRms if fixed else Rms)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(500):
            rows = torch.randint(0, 900, (64,))
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.25
