"""A soft top-2 mixture of five experts on a task with three regimes: one or two experts stay idle and
nothing is missing."""

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Mixture(nn.Module):
    def __init__(self, inputs=6, experts=5, width=24):
        super().__init__()
        self.gate = nn.Linear(inputs, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 1)) for _ in range(experts)
        )
        with torch.no_grad():
            self.gate.bias[-1] = -4.0

    def forward(self, x):
        score, index = self.gate(x).topk(2, dim=1)
        weight = score.softmax(1)
        answer = x.new_zeros(len(x), 1)
        for k, expert in enumerate(self.experts):
            row, slot = (index == k).nonzero(as_tuple=True)
            if len(row):
                answer.index_add_(0, row, weight[row, slot, None] * expert(x[row]))
        self.use = torch.bincount(index.flatten(), minlength=len(self.experts)) / index.numel()
        return answer


def regimes(n):
    x = torch.randn(n, 6)
    a, b, c = x[:, 1] - x[:, 2], x[:, 3] * 1.5, -x[:, 1] + 0.5 * x[:, 4]
    y = torch.where(x[:, 0] < -0.5, a, torch.where(x[:, 0] < 0.6, b, c))
    return x, y[:, None]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = regimes(6000)
    model = Mixture()
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(450):
            rows = torch.randint(0, 5000, (100,))
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        error = nn.functional.mse_loss(model(x[5000:]), y[5000:]).item()
    variance = y.var().item()
    return {
        "loss": losses,
        "error": error,
        "variance": variance,
        "use": model.use.tolist(),
        "learned": error < 0.2 * variance,
    }


def harmed(result):
    return False
