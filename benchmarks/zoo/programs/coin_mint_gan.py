"""Coins lie in eight piles on the table. A generator is to draw positions of coins from noise.

All samples of a batch fall on one spot, and the spot wanders from pile to pile.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["representation_collapse", "optimizer_instability"],
    "causes": ["mode_collapse"],
    "layers": ["mint", "mint.net", "mint.net.0", "mint.net.2", "mint.net.4"],
    "onset": [0, 150],
}


class Mint(nn.Module):
    def __init__(self, noise=8, width=64):
        super().__init__()
        self.noise = noise
        self.net = nn.Sequential(
            nn.Linear(noise, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )

    def forward(self, n):
        return self.net(torch.randn(n, self.noise))


class Appraiser(nn.Module):
    """Judges coins, with a look at the spread of the batch where `together` is set."""

    def __init__(self, width=64, together=False):
        super().__init__()
        self.together = together
        self.first = nn.Linear(4 if together else 2, width)
        self.second = nn.Linear(width, width)
        self.verdict = nn.Linear(width, 1)

    def forward(self, coin):
        if self.together:
            coin = torch.cat([coin, coin.std(0, keepdim=True).expand_as(coin)], 1)
        h = F.leaky_relu(self.first(coin), 0.2)
        return self.verdict(F.leaky_relu(self.second(h), 0.2))


def piles(n):
    angle = 2 * math.pi * torch.randint(0, 8, (n,)) / 8
    return 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    mint, appraiser = Mint(), Appraiser(together=fixed)
    opt_m = torch.optim.Adam(mint.parameters(), lr=1e-3 if fixed else 1e-2, betas=(0.5, 0.9))
    opt_a = torch.optim.Adam(appraiser.parameters(), lr=1e-3, betas=(0.5, 0.9))
    log = {"loss": [], "appraiser": [], "spread": []}
    with watch({"mint": mint, "appraiser": appraiser}) as dbg:
        for step in range(500):
            coins = mint(64)
            a_loss = F.softplus(-appraiser(piles(64))).mean() + F.softplus(appraiser(coins.detach())).mean()
            opt_a.zero_grad()
            a_loss.backward()
            opt_a.step()
            for _ in range(1 if fixed else 3):
                m_loss = F.softplus(-appraiser(mint(64))).mean()
                opt_m.zero_grad()
                m_loss.backward()
                opt_m.step()
            dbg.record_loss(m_loss.item())
            log["loss"].append(m_loss.item())
            log["appraiser"].append(a_loss.item())
            log["spread"].append(coins.detach().std(0).mean().item())
    return log


def harmed(result):
    return sum(result["spread"][-100:]) / 100 < 0.7
