"""Roast degree from spectra with hidden layers started at one fixed small weight, as a reference
listing did. The network is no better than with a single hidden unit."""
import torch
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability", "training_wiring"],
    "causes": ["symmetric_init"],
    "layers": ["hidden1", "hidden2"],
    "onset": [0, 0],
}


class RoastNet(nn.Module):
    def __init__(self, bands=10, width=32):
        super().__init__()
        self.hidden1 = nn.Linear(bands, width)
        self.hidden2 = nn.Linear(width, width)
        self.degree = nn.Linear(width, 1)

    def start(self, value):
        for layer in (self.hidden1, self.hidden2, self.degree):
            nn.init.constant_(layer.weight, value)
            nn.init.zeros_(layer.bias)

    def forward(self, spectrum):
        return self.degree(torch.tanh(self.hidden2(torch.tanh(self.hidden1(spectrum)))))


def roasts(n):
    x = torch.randn(n, 10)
    y = torch.sin(1.5 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] - 0.5 * x[:, 3:4].abs()
    return x, y - y.mean()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = roasts(3000)
    net = RoastNet()
    if not fixed:
        net.start(0.05)
    optimizer = torch.optim.Adam(net.parameters(), lr=8e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(400):
            rows = torch.randint(0, 3000, (64,))
            loss = nn.functional.mse_loss(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.5
