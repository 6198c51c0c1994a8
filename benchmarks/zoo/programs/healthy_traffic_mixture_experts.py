"""Traffic flow by a soft mixture of experts whose gate ends in a softmax, attention over past hours in front."""
import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Past(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lift = nn.Linear(3, width)
        self.score = nn.Linear(width, 1)

    def forward(self, hours):
        h = torch.tanh(self.lift(hours))
        share = torch.softmax(self.score(h).squeeze(-1), dim=1)
        return torch.einsum("nt,ntw->nw", share, h)


class Traffic(nn.Module):
    def __init__(self, width=32, experts=4):
        super().__init__()
        self.past = Past(width)
        self.gate = nn.Sequential(nn.Linear(width + 4, experts), nn.Softmax(dim=-1))
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width + 4, 24), nn.ReLU(), nn.Linear(24, 1)) for _ in range(experts)
        )

    def forward(self, hours, day):
        h = torch.cat([self.past(hours), day], 1)
        flows = torch.cat([expert(h) for expert in self.experts], 1)
        return (self.gate(h) * flows).sum(1)


def roads(n):
    hours, day = torch.randn(n, 8, 3), torch.randn(n, 4)
    level = hours[..., 0].mean(1) * 2
    return hours, day, torch.where(day[:, 0] > 0, level + day[:, 1], day[:, 2].abs() - level)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Traffic()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(400):
            hours, day, flow = roads(96)
            loss = nn.functional.mse_loss(model(hours, day), flow)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    last = sum(losses[-20:]) / 20
    return {"loss": losses, "last": last, "learned": last < 0.25 * sum(losses[:5]) / 5}


def harmed(result):
    return False
