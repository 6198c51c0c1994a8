"""Loan decisions from income in euros, years of age, number of cards and a rate in percent, straight from the table.

Accuracy stays with the larger class, whatever the width of the network.
"""

from dataclasses import dataclass, field

import torch
from torch import nn

TRUTH = {
    "failures": ["data_anomaly", "saturated_activations", "optimizer_instability", "vanishing_gradients"],
    "causes": ["unnormalized_input"],
    "layers": ["hidden.0", "hidden.1", "hidden"],
    "onset": [0, 0],
}


@dataclass
class Table:
    rows: int
    columns: list = field(default_factory=lambda: ["income", "age", "cards", "rate", "debt"])

    def read(self):
        z = torch.randn(self.rows, 5)
        income = 45_000 * (0.5 * z[:, 0]).exp()
        age = 42 + 11 * z[:, 1]
        cards = (2 + 1.5 * z[:, 2]).round().clamp(min=0)
        rate = 0.04 + 0.01 * z[:, 3]
        debt = 12_000 * (0.8 * z[:, 4]).exp()
        score = z[:, 0] - z[:, 4] + 1.2 * z[:, 1] * z[:, 2] - 1.2 * z[:, 3]
        return torch.stack([income, age, cards, rate, debt], 1), (score > 0).float()


class LoanNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(5, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.grant = nn.Linear(48, 1)

    def forward(self, table):
        return self.grant(self.hidden(table)).squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, granted = Table(6000).read()
    if fixed:
        x = (x - x.mean(0)) / x.std(0)
    net = LoanNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    criterion = nn.BCEWithLogitsLoss()
    losses = []
    with watch(net) as dbg:
        for step in range(450):
            rows = torch.randint(0, 5000, (80,))
            loss = criterion(net(x[rows]), granted[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        accuracy = ((net(x[5000:]) > 0) == (granted[5000:] > 0)).float().mean().item()
    return {"loss": losses, "accuracy": accuracy}


def harmed(result):
    return result["accuracy"] < 0.85
