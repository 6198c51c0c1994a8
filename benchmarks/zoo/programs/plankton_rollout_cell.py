"""Learns the seasonal map of two plankton populations by rolling a small recurrent cell forward
from the first census and comparing all later ones.

Most batches are harmless; every so often one throws the model out and the error returns to where it began.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability", "saturated_activations"],
    "causes": ["missing_gradient_clipping", "lr_too_high"],
    "layers": ["season", "season.inner", "season.outer"],
    "onset": [0, 250],
}
SEASONS = 25


class SeasonCell(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.inner = nn.Linear(2, hidden)
        self.outer = nn.Linear(hidden, 2)

    def forward(self, census):
        return torch.sigmoid(self.outer(torch.tanh(self.inner(4 * census - 2))))


class PlanktonModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.season = SeasonCell()

    def forward(self, census, seasons):
        path = []
        for _ in range(seasons):
            census = self.season(census)
            path.append(census)
        return torch.stack(path, 1)


def nature(census, seasons):
    path = []
    for _ in range(seasons):
        a, b = census[:, :1], census[:, 1:]
        census = torch.cat([3.9 * a * (1 - a) * (1 - 0.05 * b), 3.7 * b * (1 - b) * (1 - 0.1 * a)], 1)
        path.append(census)
    return torch.stack(path, 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = PlanktonModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.9)
    weight = 0.9 ** torch.arange(SEASONS)
    curve, one_ahead = [], []
    with watch(model) as dbg:
        for step in range(500):
            census = 0.05 + 0.9 * torch.rand(64, 2)
            error = (model(census, SEASONS) - nature(census, SEASONS)).square().mean((0, 2))
            loss = (weight * error).sum()
            optimizer.zero_grad()
            loss.backward()
            if fixed:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            dbg.record_loss(loss.item())
            optimizer.step()
            curve.append(loss.item())
            one_ahead.append(error[0].item())
    return {"loss": curve, "one_ahead": one_ahead}


def harmed(result):
    return not sum(result["one_ahead"][-40:]) / 40 < 0.018
