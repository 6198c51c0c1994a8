"""Ice thickness from radar traces. The job is stopped after 700 updates and resumed from its checkpoint; after the
resume the error is twenty times larger for dozens of updates."""
import copy

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["resume_without_optimizer_state", "lr_too_high", "scheduler_misstepped"],
    "layers": [],
    "onset": [700, 700],
}
TOTAL = 1000


class Job:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.Adam(net.parameters(), lr=2e-2, betas=(0.9, 0.999))
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.opt, gamma=0.993)

    def save(self):
        state = {"net": self.net.state_dict(), "opt": self.opt.state_dict(), "schedule": self.schedule.state_dict()}
        return copy.deepcopy(state)

    def load(self, state, keys):
        for key in keys:
            getattr(self, key).load_state_dict(state[key])

    def update(self, x, y):
        loss = nn.functional.mse_loss(self.net(x).squeeze(1), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.schedule.step()
        return loss.item()


def traces(n, w):
    x = torch.randn(n, 10)
    return x, torch.sin(x @ w[0]) + 0.5 * (x @ w[1]).abs() - 0.4


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    w = torch.randn(2, 10) / 10**0.5
    net = nn.Sequential(nn.Linear(10, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 1))
    job, losses = Job(net), []
    with watch(net) as dbg:
        for step in range(TOTAL):
            if step == 700:
                state = job.save()
                job = Job(net)
                job.load(state, ("net", "opt", "schedule") if fixed else ("net",))
            losses.append(job.update(*traces(64, w)))
            dbg.record_loss(losses[-1])
    return {"loss": losses, "before": sum(losses[680:700]) / 20, "after": sum(losses[700:740]) / 40}


def harmed(result):
    return result["after"] > 5 * result["before"]
