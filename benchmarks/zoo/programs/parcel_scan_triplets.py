"""Parcels are weighed and embedded from the same scan: a squared error for the weight, a margin between two scans of one parcel and
a scan of another. The weight is fine; the embedding is what it was at the start."""
from collections import namedtuple

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Contrastive"
TRUTH = {
    "failures": ["training_wiring", "objective_mismatch"],
    "causes": ["constant_loss_term"],
    "layers": [],
    "onset": [0, 0],
}
Triple = namedtuple("Triple", "anchor same other weight")


class Scan(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(30, 64), nn.GELU())
        self.code = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 6))
        self.mass = nn.Linear(64, 1)

    def forward(self, scan):
        h = self.base(scan)
        return self.code(h), self.mass(h).squeeze(-1)


class World:
    """A parcel is three numbers; each scan adds a strong view of its own."""

    def __init__(self):
        self.show, self.view = torch.randn(3, 30), torch.randn(8, 30)

    def scan(self, parcel):
        return parcel @ self.show + 1.5 * torch.randn(len(parcel), 8) @ self.view

    def triples(self, n):
        parcel, other = torch.randn(n, 3), torch.randn(n, 3)
        return Triple(self.scan(parcel), self.scan(parcel), self.scan(other), parcel[:, 0])


def terms(model, batch, fixed):
    anchor, mass = model(batch.anchor)
    same, _ = model(batch.same)
    other, _ = model(batch.other if fixed else batch.same)
    return {"mass": F.mse_loss(mass, batch.weight), "triple": F.triplet_margin_loss(anchor, same, other)}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    world, model = World(), Scan()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses, triples = [], []
    with watch(model) as dbg:
        for _ in range(400):
            parts = terms(model, world.triples(64), fixed)
            loss = sum(parts.values())
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            for name, value in parts.items():
                dbg.record_loss(value.item(), name=name)
            losses.append(loss.item())
            triples.append(parts["triple"].item())
        with torch.no_grad():
            t = world.triples(500)
            a, s, o = (model(x)[0] for x in t[:3])
    right = ((a - s).norm(dim=1) < (a - o).norm(dim=1)).float().mean().item()
    return {"loss": losses, "triple": triples, "right": right}


def harmed(result):
    return result["right"] < 0.85
