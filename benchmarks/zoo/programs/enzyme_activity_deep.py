"""Enzyme activity from descriptors with thirty plain ReLU layers: 'deeper was better in the paper'.

The three-layer version worked. This one predicts the mean.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["vanishing_gradients", "optimizer_instability"],
    "causes": ["deep_without_residual", "init_too_small"],
    "layers": ["entry", "layers"] + [f"layers.{i}" for i in range(30)] + [f"layers.{i}.lin" for i in range(30)],
    "onset": [0, 0],
}


class Layer(nn.Module):
    def __init__(self, width, skip):
        super().__init__()
        self.lin = nn.Linear(width, width)
        self.skip = skip

    def forward(self, h):
        out = torch.relu(self.lin(h))
        return h + 0.18 * out if self.skip else out


class ActivityModel(nn.Module):
    def __init__(self, descriptors=14, width=48, depth=30, skip=False):
        super().__init__()
        self.entry = nn.Linear(descriptors, width)
        self.layers = nn.ModuleList([Layer(width, skip) for _ in range(depth)])
        self.activity = nn.Linear(width, 1)

    def forward(self, x):
        h = torch.relu(self.entry(x))
        for layer in self.layers:
            h = layer(h)
        return self.activity(h)


def assay(n):
    x = torch.randn(n, 14)
    y = x[:, 0] * x[:, 1] + torch.sin(2 * x[:, 2]) + 0.5 * x[:, 3:6].sum(1)
    return x, ((y - y.mean()) / y.std())[:, None]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = assay(4000)
    model = ActivityModel(skip=fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    with watch(model) as dbg:
        for step in range(400):
            rows = torch.randint(0, len(x), (64,))
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.5
