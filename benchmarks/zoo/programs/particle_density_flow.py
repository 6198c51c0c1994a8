"""Density of detector hits with a small mixture model, trained by log-likelihood. The printed number
goes down faster and faster, and samples from the model are far from any hit."""
import math

import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["wrong_loss_sign"],
    "layers": [],
    "onset": [0, 0],
}


class HitDensity(nn.Module):
    def __init__(self, parts=6, width=32):
        super().__init__()
        self.context = nn.Sequential(nn.Linear(3, width), nn.Tanh())
        self.parts = nn.Linear(width, parts * 5)

    def forward(self, angle):
        return self.parts(self.context(angle)).view(len(angle), -1, 5)

    def log_prob(self, angle, hit):
        weight, mean, log_sigma = self(angle).split([1, 2, 2], -1)
        log_sigma = log_sigma.clamp(-3, 3)
        z = (hit[:, None] - mean) / log_sigma.exp()
        parts = (-0.5 * z**2 - log_sigma - 0.5 * math.log(2 * math.pi)).sum(-1)
        return torch.logsumexp(parts + weight.squeeze(-1).log_softmax(-1), -1)


def hits(n):
    angle = torch.randn(n, 3)
    side = torch.randint(0, 2, (n, 1)) * 2 - 1.0
    hit = torch.cat([angle[:, :1] + side, angle[:, 1:2] * side], 1) + 0.2 * torch.randn(n, 2)
    return angle, hit


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    angle, hit = hits(3000)
    model = HitDensity()
    sign = -1.0 if fixed else 1.0
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses, likelihood = [], []
    with watch(model) as dbg:
        for step in range(350):
            rows = torch.randint(0, 3000, (64,))
            value = model.log_prob(angle[rows], hit[rows]).mean()
            loss = sign * value
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            likelihood.append(value.item())
    return {"loss": losses, "likelihood": likelihood}


def harmed(result):
    return not sum(result["likelihood"][-20:]) / 20 > -2.0
