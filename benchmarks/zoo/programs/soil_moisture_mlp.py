"""Soil moisture from satellite bands; a six-layer network whose weights start 'close to zero to be safe'.

For hundreds of batches the prediction does not move from the mean.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["vanishing_gradients", "optimizer_instability"],
    "causes": ["init_too_small"],
    "layers": ["bands", "body", "body.1", "body.3", "body.5", "moisture"],
    "onset": [0, 0],
}


class MoistureNet(nn.Module):
    def __init__(self, bands=10, width=64, std=None):
        super().__init__()
        self.bands = nn.Linear(bands, width)
        self.body = nn.Sequential(
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
        )
        self.moisture = nn.Linear(width, 1)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.zeros_(m.bias)
                if std is None:
                    nn.init.xavier_normal_(m.weight)
                else:
                    nn.init.normal_(m.weight, std=std)

    def forward(self, x):
        return self.moisture(self.body(self.bands(x)))


def satellite(n):
    x = torch.randn(n, 10)
    wet = torch.tanh(x[:, 0] + 0.5 * x[:, 1]) - 0.7 * x[:, 2] * x[:, 3].sigmoid() + 0.3 * x[:, 4]
    return x, ((wet - wet.mean()) / wet.std())[:, None]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*satellite(2000)), batch_size=50, shuffle=True)
    model = MoistureNet(std=None if fixed else 0.005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    with watch(model) as dbg:
        for epoch in range(10):
            for x, wet in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(x), wet)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.5
