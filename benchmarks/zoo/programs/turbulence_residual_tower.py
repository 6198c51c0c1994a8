"""Closure model for turbulence: sixteen residual blocks without normalisation, every branch at full scale.

The first error is a number with many digits, and the error at the end is worse than a linear fit's.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability"],
    "causes": ["residual_scale_growth", "init_too_large"],
    "layers": ["blocks"]
    + [f"blocks.{i}" for i in range(16)]
    + [f"blocks.{i}.{p}" for i in range(16) for p in ("up", "down")],
    "onset": [0, 0],
}


class Block(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.scale = scale
        for layer in (self.up, self.down):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def forward(self, h):
        return h + self.scale * self.down(torch.relu(self.up(h)))


class Closure(nn.Module):
    def __init__(self, width=48, depth=16, scale=1.0):
        super().__init__()
        self.lift = nn.Linear(9, width)
        self.blocks = nn.ModuleList([Block(width, scale) for _ in range(depth)])
        self.stress = nn.Linear(width, 3)

    def forward(self, gradient):
        h = self.lift(gradient)
        for block in self.blocks:
            h = block(h)
        return self.stress(h)


def flow(n):
    gradient = torch.randn(n, 9)
    m = gradient.view(n, 3, 3)
    strain, spin = (m + m.mT) / 2, (m - m.mT) / 2
    stress = (strain @ strain - spin @ spin).diagonal(dim1=1, dim2=2)
    return gradient, (stress - stress.mean(0)) / stress.std(0)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    gradient, stress = flow(6000)
    depth = 16
    model = Closure(depth=depth, scale=(2 * depth) ** -0.5 if fixed else 1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(300):
            rows = torch.randint(0, len(gradient), (64,))
            loss = nn.functional.mse_loss(model(gradient[rows]), stress[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.4
