"""Travel times on a road net. Before the rush-hour data come in, the encoder is set to its running average,
as recommended. The error on the rush-hour data then stays high; only the last layer seems to adapt."""
import copy

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["stale_optimizer_parameters", "parameters_not_in_optimizer"],
    "layers": ["encoder", "encoder.0", "encoder.1", "encoder.3"],
    "onset": [800, 800],
}


class TravelTime(nn.Module):
    def __init__(self, inputs=8, width=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.minutes = nn.Linear(width, 1)

    def forward(self, x):
        return self.minutes(self.encoder(x)).squeeze(-1)


@torch.no_grad()
def blend(average, live, keep=0.98):
    for a, b in zip(average.parameters(), live.parameters()):
        a.lerp_(b, 1 - keep)


def day(n, roads, rush):
    x = torch.randn(n, 8)
    y = torch.sin(1.5 * x @ roads[0]) + x @ roads[1]
    if rush:
        y = torch.sin(2 * x @ roads[2]) * 1.5 + (x @ roads[3]).abs() - 0.8
    return x, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    roads = torch.randn(4, 8) / 8**0.5
    net = TravelTime()
    average = copy.deepcopy(net.encoder)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    losses = []
    with watch(net) as dbg:
        for step in range(2000):
            if step == 800:
                if fixed:
                    net.encoder.load_state_dict(average.state_dict())
                else:
                    net.encoder = copy.deepcopy(average)
            x, y = day(64, roads, rush=step >= 800)
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            blend(average, net.encoder)
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    return {"loss": losses, "rush_error": sum(losses[-100:]) / 100}


def harmed(result):
    return result["rush_error"] > 0.45
