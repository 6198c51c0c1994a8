"""Discharge of a river gauge in cubic metres per second from rain and soil sensors, in the
order of the years. One autumn flood turns the loss into NaN; the records themselves are fine."""
import torch
import torch.nn as nn

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["exp_overflow"],
    "layers": ["positive"],
    "onset": [96, 96],
}


class Positive(nn.Module):
    """log(1 + e^x): never below zero, nearly linear above."""

    def __init__(self, capped):
        super().__init__()
        self.capped = capped

    def forward(self, x):
        if self.capped:
            return nn.functional.softplus(x)
        return torch.log(1 + torch.exp(x))


class Gauge(nn.Module):
    unit = 25.0

    def __init__(self, capped):
        super().__init__()
        self.rain = nn.Linear(6, 32)
        self.soil = nn.Linear(4, 32)
        self.flow = nn.Linear(32, 1)
        self.positive = Positive(capped)

    def forward(self, rain, soil):
        storage = torch.relu(self.rain(rain) + self.soil(soil))
        return self.positive(self.unit * self.flow(storage)).squeeze(1)


def years(days):
    rain, soil = torch.rand(days, 6) ** 3 * 1.6, torch.randn(days, 4) * 0.5
    rain[96 * 32 + 7] = 5.0 + 0.2 * torch.rand(6)
    discharge = 4 + 10 * rain.sum(1) * (0.8 + 0.2 * torch.tanh(soil[:, 0]))
    return rain, soil, discharge


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rain, soil, discharge = years(32 * 110)
    gauge = Gauge(capped=fixed)
    nn.init.constant_(gauge.flow.bias, 0.5)
    optim = torch.optim.Adam(gauge.parameters(), lr=1e-2)
    losses = []
    with watch(gauge) as dbg:
        for lap in range(3):
            for d in range(0, len(rain), 32):
                day = slice(d, d + 32)
                guess = gauge(rain[day], soil[day])
                loss = nn.functional.mse_loss(torch.log1p(guess), torch.log1p(discharge[day]))
                optim.zero_grad()
                loss.backward()
                optim.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.1
