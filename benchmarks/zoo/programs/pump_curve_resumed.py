"""A surrogate of pump curves on a shared machine that stops each job once. After the restart from the saved file
the error is much larger for a long time, though the weights were loaded and compared."""
import io

import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["resume_without_optimizer_state", "scheduler_misstepped"],
    "layers": [],
    "onset": [300, 301],
}


class Surrogate(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Job:
    def __init__(self):
        self.model = Surrogate()
        self.start()

    def start(self):
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-2, betas=(0.9, 0.999))
        self.plan = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.988)

    def save(self, full):
        state = {"model": self.model.state_dict()}
        if full:
            state |= {"opt": self.opt.state_dict(), "plan": self.plan.state_dict()}
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        return file

    def load(self, file):
        state = torch.load(file, weights_only=False)
        self.model.load_state_dict(state["model"])
        self.start()
        if "opt" in state:
            self.opt.load_state_dict(state["opt"])
            self.plan.load_state_dict(state["plan"])


def points(n):
    x = torch.rand(n, 3) * 2 - 1
    return x, (torch.sin(3 * x[:, 0]) * x[:, 1] - x[:, 2] ** 2) / 0.6


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    job, losses = Job(), []
    with watch(job.model) as dbg:
        for step in range(420):
            if step == 300:
                job.load(job.save(full=fixed))
            x, y = points(128)
            loss = nn.functional.mse_loss(job.model(x), y)
            job.opt.zero_grad()
            loss.backward()
            job.opt.step()
            job.plan.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "before": sum(losses[280:300]) / 20, "after": sum(losses[300:360]) / 60}


def harmed(result):
    return result["after"] > 4 * result["before"]
