"""Venue of a paper from its words and from what it cites, with as many hops as the config says.
More hops do not help, and neither does training longer."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "GNN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["unregistered_modules"],
    "layers": [],
    "onset": [0, 0],
}

config = SimpleNamespace(hops=2, width=32, lr=1e-2, epochs=90, papers=700, venues=4, words=10)


class HopNet(nn.Module):
    def __init__(self, cfg, registered):
        super().__init__()
        sizes = [cfg.words] + [cfg.width] * cfg.hops
        hops = [nn.Linear(2 * a, b) for a, b in zip(sizes, sizes[1:])]
        self.hops = nn.ModuleList(hops) if registered else hops
        self.venue = nn.Linear(cfg.width, cfg.venues)

    def forward(self, words, cites):
        h = words
        for hop in self.hops:
            h = F.elu(hop(torch.cat([h, cites @ h], -1)))
        return self.venue(h)


def library(cfg):
    """Papers of two habits by two topics; only the product of both tells the venue."""
    words = torch.randn(cfg.papers, cfg.words)
    topic = (words[:, 0] + 0.3 * words[:, 2] > 0).long()
    same = topic[:, None] == topic[None]
    cites = (torch.rand(cfg.papers, cfg.papers) < torch.where(same, 0.02, 0.005)).float()
    cites = cites.fill_diagonal_(0)
    cites = cites / cites.sum(1, keepdim=True).clamp(min=1)
    habit = (words[:, 1] * words[:, 0] > 0).long()
    return words, cites, 2 * habit + topic


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    words, cites, venue = library(config)
    known = torch.rand(config.papers) < 0.7
    model = HopNet(config, registered=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=5e-4)
    losses = []
    with watch(model) as dbg:
        for _ in range(config.epochs):
            logits = model(words, cites)
            loss = F.cross_entropy(logits[known], venue[known])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        right = (model(words, cites).argmax(1) == venue)[~known].float().mean().item()
    return {"loss": losses, "accuracy": right}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.4
