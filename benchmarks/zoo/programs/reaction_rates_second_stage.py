"""Reaction rates from temperature and concentrations. A coarse stage without schedule, then a second stage
with an exponential schedule on the full chemistry; the second stage stands still almost at once."""
import torch
from torch import nn, optim

ARCHITECTURE = "ResNet"
TRUTH = {
    "failures": ["optimizer_instability", "training_wiring"],
    "causes": ["lr_decayed_to_zero", "scheduler_misstepped"],
    "layers": [],
    "onset": [500, 520],
}


class Rates(nn.Module):
    def __init__(self, species=5):
        super().__init__()
        self.inp = nn.Linear(species + 1, 64)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.Softplus(), nn.Linear(64, 64)) for _ in range(2))
        self.out = nn.Linear(64, species)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h)
        return self.out(h)


def chemistry(n, k, full):
    c = torch.rand(n, 5)
    temp = torch.rand(n, 1)
    flow = c @ k[0] * (0.5 + temp)
    if full:
        flow = flow + torch.exp(1.5 * temp) * (c @ k[1]) * (c @ k[2])
    return torch.cat([2 * c - 1, 2 * temp - 1], 1), flow


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    k = torch.randn(3, 5, 5) / 2
    simple, full = chemistry(1600, k, False), chemistry(1600, k, True)
    model = Rates()
    losses = []

    with watch(model) as dbg:
        def epoch(data, opt, after_batch=None):
            for rows in torch.randperm(1600).split(32):
                loss = nn.functional.huber_loss(model(data[0][rows]), data[1][rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
                if after_batch:
                    after_batch()

        opt = optim.RMSprop(model.parameters(), lr=1e-3)
        for _ in range(10):
            epoch(simple, opt)
        schedule = optim.lr_scheduler.ExponentialLR(opt, gamma=0.85)
        for _ in range(18):
            if fixed:
                epoch(full, opt)
                schedule.step()
            else:
                epoch(full, opt, schedule.step)
    tail = sum(losses[-50:]) / 50
    return {"loss": losses, "stage_two_start": sum(losses[500:510]) / 10, "tail": tail}


def harmed(result):
    return result["tail"] > 0.04
