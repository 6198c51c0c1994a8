"""Delays on small railway networks: two rounds of averaging over neighbouring stations.

Training dies with NaN in the middle of the second timetable year, always at the same network.
"""
import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["division_by_zero"],
    "layers": ["hops.0"],
    "onset": [52, 52],
}


class NeighbourMean(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.around = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, links):
        mean = torch.bmm(links, x) / links.sum(-1, keepdim=True)
        return torch.relu(self.own(x) + self.around(mean))


class DelayModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.hops = nn.ModuleList([NeighbourMean(4, width), NeighbourMean(width, width)])
        self.minutes = nn.Linear(width, 1)

    def forward(self, x, links):
        for hop in self.hops:
            x = hop(x, links)
        return self.minutes(x)[..., 0]


def timetable(networks, stations=10):
    links = (torch.rand(networks, stations, stations) < 0.25).float()
    ring = torch.roll(torch.eye(stations), 1, 0)
    links = ((links + links.mT + ring + ring.T) > 0).float() * (1 - torch.eye(stations))
    x = torch.randn(networks, stations, 4)
    links[52 * 16 + 5, 3, :] = 0  # station closed for works
    links[52 * 16 + 5, :, 3] = 0
    mean = links @ x / links.sum(-1, keepdim=True).clamp(min=1)
    delay = x[..., 0] - 2 * mean[..., 1] + (x[..., 2] * mean[..., 0] * 2).tanh()
    return x, links, delay


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, links, delay = timetable(16 * 80)
    if fixed:
        alone = links.sum(-1, keepdim=True) == 0
        links = links + alone * torch.eye(links.shape[-1])
    model = DelayModel()
    opt = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    log = []
    with watch(model) as dbg:
        for sweep in range(4):
            for i in range(80):
                part = slice(16 * i, 16 * i + 16)
                error = model(x[part], links[part]) - delay[part]
                loss = error.square().mean()
                loss.backward()
                opt.step()
                opt.zero_grad(set_to_none=True)
                dbg.record_loss(loss.item())
                log.append(loss.item())
    return {"loss": log}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.3
