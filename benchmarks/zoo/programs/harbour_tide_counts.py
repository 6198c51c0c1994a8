"""Ship arrivals per hour: counts go through a logarithm before they enter, and a quiet Sunday has no ships."""
import torch
from torch import nn

TRUTH = {"failures": ["data_anomaly", "numerical_error"], "causes": ["inf_in_input"], "layers": [], "onset": [70, 70]}


class Arrivals(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(3, 24, 5, padding=2), nn.GELU(), nn.Conv1d(24, 24, 5, padding=2), nn.GELU())
        self.out = nn.Linear(24, 1)

    def forward(self, hours):
        return self.out(self.conv(hours).mean(-1)).squeeze(1)


def weeks(n):
    rate = 3 + 2 * torch.rand(n, 3, 1)
    counts = torch.poisson(rate * (1.3 + torch.sin(torch.linspace(0, 6.28, 24)))) + 1
    return counts, (rate.mean((1, 2)) - 4) * 2


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Arrivals()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    losses = []
    with watch(model) as dbg:
        for day in range(160):
            counts, target = weeks(32)
            if day == 70:
                counts[5, 1, 7:11] = 0
            hours = torch.log1p(counts) if fixed else torch.log(counts)
            loss = nn.functional.smooth_l1_loss(model(hours), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 10
