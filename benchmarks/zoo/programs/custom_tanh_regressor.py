"""Copied a memory-saving activation into an MLP regressor; the fit is far worse than with torch.tanh."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error", "training_wiring"],
    "causes": ["custom_backward_wrong"],
    "layers": ["act1", "act2", "act3"],
    "onset": [0, 0],
}


class LeanTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.tanh(x)
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def backward(ctx, grad):
        (saved,) = ctx.saved_tensors
        return grad * (1 - saved**2)


class Activation(nn.Module):
    def __init__(self, lean):
        super().__init__()
        self.lean = lean

    def forward(self, x):
        return LeanTanh.apply(x) if self.lean else torch.tanh(x)


class Regressor(nn.Module):
    def __init__(self, lean, width=64):
        super().__init__()
        self.fc1, self.act1 = nn.Linear(6, width), Activation(lean)
        self.fc2, self.act2 = nn.Linear(width, width), Activation(lean)
        self.fc3, self.act3 = nn.Linear(width, width), Activation(lean)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        x = self.act1(self.fc1(x))
        x = self.act2(self.fc2(x))
        x = self.act3(self.fc3(x))
        return self.out(x).squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x = 2 * torch.randn(4000, 6)
    y = torch.sin(x[:, 0]) * x[:, 1] + 0.5 * x[:, 2].abs() - x[:, 3]
    y = (y - y.mean()) / y.std()
    model = Regressor(lean=not fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for it in range(800):
            rows = torch.randint(0, 4000, (128,))
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.3
