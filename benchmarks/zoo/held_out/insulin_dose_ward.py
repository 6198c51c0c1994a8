"""Evening insulin dose from a day's chart, compared on the log scale; patients without a dose are
handled by a case of their own. After a few good minutes all weights are NaN, the loss was fine."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["masked_nan_gradient"],
    "layers": [],
    "onset": [141, 141],
}


def ward_charts(batches, size):
    chart = torch.randn(batches * size, 12)
    dose = torch.exp(0.5 * chart[:, 0] - 0.4 * chart[:, 1] + 0.3 * chart[:, 2] * chart[:, 3])
    first = 141 * size + 9
    none = torch.zeros(len(dose), dtype=torch.bool)
    none[first] = True
    none[first + 1 :] = torch.rand(len(dose) - first - 1) < 0.01
    return chart.split(size), dose.masked_fill(none, 0.0).split(size)


def dose_loss(predicted, dose, careful):
    given = dose > 0
    reference = torch.where(given, dose, torch.ones_like(dose)) if careful else dose
    ratio = (predicted.log() - reference.log()) ** 2
    return torch.where(given, ratio, 0.1 * predicted).mean()


class DoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(12, 48), nn.Linear(48, 48)])
        self.head = nn.Linear(48, 1)

    def forward(self, x):
        for layer in self.layers:
            x = F.elu(layer(x))
        return F.softplus(self.head(x)).squeeze(-1) + 1e-3


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    charts, doses = ward_charts(220, 32)
    model = DoseNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for chart, dose in zip(charts, doses):
            loss = dose_loss(model(chart), dose, careful=fixed)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.2
