"""Snowflake shapes in small pictures with a seven-stage convolutional network of logistic units, after an old
textbook.

The loss is at chance; only the last layer's numbers change.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["vanishing_gradients", "saturated_activations", "optimizer_instability"],
    "causes": ["saturating_activations"],
    "layers": ["stages"]
    + [f"stages.{i}" for i in range(7)]
    + [f"stages.{i}.{p}" for i in range(7) for p in ("filter", "unit")],
    "onset": [0, 0],
}


class Stage(nn.Module):
    def __init__(self, cin, cout, unit):
        super().__init__()
        self.filter = nn.Conv2d(cin, cout, 3, padding=1)
        self.unit = unit()
        nn.init.kaiming_normal_(self.filter.weight)
        nn.init.zeros_(self.filter.bias)

    def forward(self, x):
        return self.unit(self.filter(x))


class FlakeNet(nn.Module):
    def __init__(self, unit):
        super().__init__()
        widths = [1] + [14] * 7
        self.stages = nn.Sequential(*[Stage(a, b, unit) for a, b in zip(widths, widths[1:])])
        self.shape = nn.Linear(14 * 25, 3)

    def forward(self, picture):
        h = nn.functional.adaptive_avg_pool2d(self.stages(picture), 5)
        return self.shape(h.flatten(1))


def flakes(n, side=15):
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    shape = torch.randint(0, 3, (n,))
    dx = x - 0.7 * (torch.rand(n, 1, 1) - 0.5)
    dy = y - 0.7 * (torch.rand(n, 1, 1) - 0.5)
    angle, radius = torch.atan2(dy, dx), (dx**2 + dy**2).sqrt()
    arms = torch.tensor([3.0, 4.0, 6.0])[shape][:, None, None]
    picture = torch.exp(-(((radius - 0.35 - 0.2 * torch.cos(arms * angle)) / 0.2) ** 2))
    picture = picture + 0.25 * torch.randn(n, side, side)
    return ((picture - picture.mean()) / picture.std())[:, None], shape


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*flakes(960)), batch_size=40, shuffle=True)
    net = FlakeNet(nn.ReLU if fixed else nn.Sigmoid)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    curve = []
    with watch(net) as dbg:
        for epoch in range(10):
            for picture, shape in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(picture), shape)
                loss.backward()
                dbg.record_loss(loss.item())
                optimizer.step()
                curve.append(loss.item())
    return {"loss": curve}


def harmed(result):
    return sum(result["loss"][-24:]) / 24 > 0.8
