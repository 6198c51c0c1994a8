"""A mixture density network for a two-valued inverse problem: its negative log-likelihood starts above zero, goes
far below and keeps falling, as it may."""
import math

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Flow / density"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Mixture(nn.Module):
    def __init__(self, parts=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.mean, self.spread, self.share = (nn.Linear(48, parts) for _ in range(3))

    def forward(self, x):
        h = self.body(x)
        return self.mean(h), F.softplus(self.spread(h)) + 1e-3, self.share(h).log_softmax(-1)


def nll(y, mean, spread, share):
    z = (y - mean) / spread
    return -torch.logsumexp(share - 0.5 * z.square() - spread.log() - 0.5 * math.log(2 * math.pi), -1).mean()


def arms(n):
    x = torch.rand(n, 1) * 2 - 1
    sign = torch.randint(0, 2, (n, 1)) * 2.0 - 1
    return x, 0.5 * sign * (1.2 - x.square()) + 0.01 * torch.randn(n, 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Mixture()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    plan = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=600)
    losses = []
    with watch(model) as dbg:
        for _ in range(600):
            x, y = arms(128)
            loss = nll(y, *model(x))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            plan.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-20:]) / 20 < -1.2}


def harmed(result):
    return False
