"""Flight delay from weather readings and a calendar block. The weather part was scaled with care; the
network predicts nearly the same delay for each flight whatever the user tries."""
import math
from dataclasses import dataclass

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["data_anomaly", "saturated_activations", "optimizer_instability", "vanishing_gradients"],
    "causes": ["unnormalized_input"],
    "layers": [],
    "onset": [0, 0],
}


@dataclass
class Prediction:
    delay: torch.Tensor
    state: torch.Tensor


class DelayNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.weather = nn.Linear(6, width)
        self.calendar = nn.Linear(3, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, *, weather, calendar):
        state = torch.tanh(self.weather(weather) + self.calendar(calendar))
        state = torch.tanh(self.mix(state))
        return Prediction(self.out(state).squeeze(-1), state)


def flights(n, fixed):
    weather = torch.randn(n, 6)
    stamp = 1.69e9 + torch.rand(n, dtype=torch.float64) * 30 * 86400  # seconds since 1970
    hour = (stamp % 86400) / 3600
    clock = torch.stack([(hour / 24 * 2 * math.pi).sin(), (hour / 24 * 2 * math.pi).cos()], 1).float()
    age = (stamp - 1.69e9) / 86400 / 15 - 1 if fixed else stamp
    calendar = torch.cat([clock, age.float()[:, None]], 1)
    delay = weather[:, 0] + weather[:, 1] * weather[:, 2] + clock[:, 0] + 0.1 * torch.randn(n)
    return {"weather": weather, "calendar": calendar}, (delay - delay.mean()) / delay.std()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    inputs, delay = flights(2048, fixed)
    model = DelayNet()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(10):
            for rows in torch.randperm(2048).split(64):
                prediction = model(**{k: v[rows] for k, v in inputs.items()})
                loss = nn.functional.huber_loss(prediction.delay, delay[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.25
