"""Radiated power of antenna arrays under float16 autocast: amplitudes are summed and squared in the model.
The loss is infinite from the first batch with a large array on."""
import torch
from torch import nn

TRUTH = {"failures": ["numerical_error"], "causes": ["half_precision_overflow"], "layers": ["array", "", "array.2"], "onset": [0, 60]}


class Power(nn.Module):
    def __init__(self, keep):
        super().__init__()
        self.array = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32))
        self.mix = nn.Linear(32, 1)
        self.keep = keep

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            amplitude = 100 * self.array(x)
            if self.keep:
                with torch.autocast("cpu", enabled=False):
                    power = (amplitude.float() ** 2).sum(-1, keepdim=True)
            else:
                power = (amplitude**2).sum(-1, keepdim=True)
        return torch.log1p(power.float()) + 0.0 * self.mix.bias


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(700, 12)
    y = torch.log1p(1e4 * (x[:, :4] ** 2).sum(1, keepdim=True))
    model = Power(fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(150):
            rows = torch.randint(0, 700, (32,))
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 5
