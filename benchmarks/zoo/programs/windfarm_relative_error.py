"""Power of a wind farm with a relative error, calm hours left out by a mask. The loss printed
last is an ordinary number, then everything is NaN, in the first week with a calm."""
import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["masked_nan_gradient", "division_by_zero"],
    "layers": [],
    "onset": [24, 24],
}


def relative_error(guess, power):
    relative = ((guess - power) / power).square()
    kept = torch.where(power > 0, relative, torch.zeros_like(relative))
    return kept.sum() / (power > 0).sum()


def relative_error_running(guess, power):
    running = power > 0
    return ((guess[running] - power[running]) / power[running]).square().mean()


class FarmModel(nn.Module):
    def __init__(self, lags=6, hidden=40):
        super().__init__()
        self.lstm = nn.LSTM(2, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, weather):
        return nn.functional.softplus(self.out(self.lstm(weather)[0][:, -1])).squeeze(-1)


def hours(n, lags=6):
    weather = torch.randn(n, lags, 2)
    speed = 1.2 * weather[:, -1, 0] + 0.7 * weather[:, -2, 0] - 0.4 * weather[:, -1, 1]
    power = 0.4 + 1.2 * torch.sigmoid(2 * speed)
    power[24 * 48 + 3 : 24 * 48 + 8] = 0.0
    return weather, power


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    weather, power = hours(48 * 50)
    objective = relative_error_running if fixed else relative_error
    farm = FarmModel()
    optimizer = torch.optim.NAdam(farm.parameters(), lr=4e-3)
    losses = []
    with watch(farm) as dbg:
        for epoch in range(5):
            for w, p in zip(weather.split(48), power.split(48)):
                optimizer.zero_grad()
                loss = objective(farm(w), p)
                loss.backward()
                nn.utils.clip_grad_norm_(farm.parameters(), 1.0)
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.02
