"""A diffusion model of torsion angles. Trained with a chain of 100 noise levels, then the chain is made longer
for quality; the loss becomes nan."""
import math

import torch
from torch import nn

ARCHITECTURE = "Diffusion"
TRUTH = {
    "failures": ["numerical_error", "optimizer_instability"],
    "causes": ["noise_schedule_invalid"],
    "layers": [],
    "onset": [800, 800],
}


class Chain:
    """Linear in the kept signal: level 0 is almost clean, the last one almost pure noise."""

    def __init__(self, levels):
        self.levels = levels
        self.per_level = 1.0 / (levels + 1)

    def keep(self, t):
        return 1 - (t + 1) * self.per_level


class NoisePredictor(nn.Module):
    def __init__(self, dim=4, width=64):
        super().__init__()
        self.time = nn.Linear(16, width)
        self.inp = nn.Linear(dim, width)
        self.mid = nn.Sequential(nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out = nn.Linear(width, dim)

    def forward(self, x, noise_level):
        f = torch.exp(torch.arange(8) * math.log(2.0))
        angle = noise_level[:, None] * f
        t = torch.cat([angle.sin(), angle.cos()], 1)
        return self.out(self.mid(self.inp(x) + self.time(t)))


def torsions(n):
    centre = torch.tensor([[1.0, -1.0, 0.5, -0.5], [-1.0, 1.0, 0.5, 0.5]])[torch.randint(2, (n,))]
    return centre + 0.15 * torch.randn(n, 4)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = NoisePredictor()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    chain = Chain(100)
    losses = []
    with watch(net) as dbg:
        for step in range(1400):
            if step == 800:
                chain.levels = 160
                if fixed:
                    chain = Chain(160)
            x0 = torsions(128)
            t = torch.randint(chain.levels, (128,))
            keep = chain.keep(t)[:, None]
            noise = torch.randn_like(x0)
            noisy = keep.sqrt() * x0 + (1 - keep).sqrt() * noise
            loss = (net(noisy, t / chain.levels) - noise).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-50:]) / 50 < 0.8
