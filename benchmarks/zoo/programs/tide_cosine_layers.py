"""Tide heights from time stamps with cosine features; the activation is a hand-made autograd
function to save memory. The curve never fits, whatever the width or the rate."""
import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error", "training_wiring", "optimizer_instability", "objective_mismatch"],
    "causes": ["custom_backward_wrong"],
    "layers": ["waves.0.cosine", "waves.1.cosine", "waves.0", "waves.1"],
    "onset": [0, 0],
}


class SlimCosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.cos()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.sin()


class ExactCosine(SlimCosine):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return -grad * x.sin()


class Cosine(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


class Wave(nn.Module):
    def __init__(self, inputs, outputs, function):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.cosine = Cosine(function)

    def forward(self, x):
        return self.cosine(self.linear(x))


class TideModel(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.waves = nn.Sequential(Wave(5, 32, function), Wave(32, 32, function))
        self.height = nn.Linear(32, 1)

    def forward(self, x):
        return self.height(self.waves(x))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(1024, 5)
    y = torch.sin(x[:, :1] + 0.5 * x[:, 1:2]) + 0.6 * torch.cos(1.5 * x[:, 2:3] - x[:, 3:4])
    model = TideModel(ExactCosine if fixed else SlimCosine)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    loss_fn = nn.MSELoss()
    losses = []
    with watch(model) as dbg:
        for step in range(400):
            rows = torch.randint(0, len(x), (64,))
            optimizer.zero_grad()
            loss = loss_fn(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.detach())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.06
