"""Passengers of the next ferry from the last twelve, in three epochs of plain SGD. The loss falls
at first, then swings about and does not settle where a colleague gets to."""

import torch
from torch import nn

ARCHITECTURE = "LSTM / GRU"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability", "exploding_gradients"],
    "causes": ["missing_zero_grad"],
    "layers": [],
    "onset": [0, 1],
}


class Demand(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(2, 24, batch_first=True)
        self.passengers = nn.Linear(24, 1)

    def forward(self, window):
        out, _ = self.gru(window)
        return self.passengers(out[:, -1]).squeeze(-1)


def timetable(hours):
    t = torch.arange(hours).float()
    day = torch.sin(t * 6.2832 / 12) + 0.5 * torch.sin(t * 6.2832 / 7)
    noise = 0.15 * torch.randn(hours)
    return torch.stack([(day + noise) / 0.8, torch.cos(t * 6.2832 / 7)], 1)


def windows(series, length=12):
    x = series.unfold(0, length, 1)[:-1].transpose(1, 2)
    return x, series[length:, 0]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = windows(timetable(3000))
    model = Demand()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15)
    losses = []
    with watch(model) as dbg:
        for epoch in range(3):
            optimizer.zero_grad()
            for rows in torch.randperm(len(x)).split(32):
                if fixed:
                    optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(x[rows]), y[rows])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-40:]) / 40 < 0.12
