"""Riffs played twice are embedded so that the two takes come close, on the unit sphere. The loss is near zero soon; looking up
a take finds any other riff as well as its own."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {
    "failures": ["representation_collapse"],
    "causes": ["embedding_collapse"],
    "layers": [],
    "onset": [0, 60],
}


@dataclass(frozen=True)
class Weights:
    close: float = 1.0
    apart: float = 0.0  # was 1.0 in the thesis


class Riff(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 32, 5, padding=2)
        self.fc = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 16))

    def forward(self, take):
        return F.normalize(self.fc(F.silu(self.conv(take)).mean(-1)), dim=-1)


def takes(n):
    riff = torch.randn(n, 4, 24)
    riff = riff + torch.randn(n, 4, 1)
    return riff + 0.3 * torch.randn_like(riff), riff + 0.3 * torch.randn_like(riff)


def objective(a, b, w):
    close = (a - b).square().sum(-1).mean()
    apart = torch.pdist(torch.cat([a, b])).square().mul(-2).exp().mean().log()
    return w.close * close + w.apart * apart if w.apart else w.close * close


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Riff()
    weights = Weights(apart=1.0) if fixed else Weights()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(300):
            first, second = takes(64)
            loss = objective(model(first), model(second), weights)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        first, second = takes(128)
        a, b = model(first), model(second)
    a, b = a.bfloat16().float(), b.bfloat16().float()  # as the index stores them
    found = (a @ b.T).argmax(1) == torch.arange(128)
    return {"loss": losses, "found": found.float().mean().item(), "spread": a.std(0).mean().item()}


def harmed(result):
    return result["found"] < 0.6
