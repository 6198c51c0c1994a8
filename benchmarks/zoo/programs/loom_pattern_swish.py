"""Weave patterns from thread tension with a hand-made, memory-saving activation. It trains, but never well."""
import torch
from torch import nn

TRUTH = {"failures": ["numerical_error", "training_wiring"], "causes": ["custom_backward_wrong"], "layers": ["cells.0", "cells.1", "cells.2", "cells.0.mix", "cells.1.mix", "cells.2.mix"], "onset": [0, 0]}


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 - s) - x * s)


class RightGate(Gate):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


class Cell(nn.Module):
    def __init__(self, i, o, gate):
        super().__init__()
        self.mix, self.gate = nn.Conv1d(i, o, 3, padding=1), gate.apply

    def forward(self, x):
        return self.gate(self.mix(x))


class Loom(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.cells = nn.Sequential(Cell(4, 24, gate), Cell(24, 24, gate), Cell(24, 24, gate))
        self.read = nn.Linear(24, 6)

    def forward(self, x):
        return self.read(self.cells(x).mean(-1))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    kind = torch.randint(0, 6, (700,))
    t = torch.linspace(0, 6.28, 24)
    thread = torch.sin(t * (1 + kind[:, None, None]) + 6.28 * torch.rand(700, 4, 1)) + 0.5 * torch.randn(700, 4, 24)
    model = Loom(RightGate if fixed else Gate)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(300):
            rows = torch.randint(0, 700, (48,))
            loss = nn.functional.cross_entropy(model(thread[rows]), kind[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.9
