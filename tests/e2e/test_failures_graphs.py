# SPDX-License-Identifier: MIT
"""Networks over graphs whose adjacency is sparse: an argument, a buffer, or outside the model."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

pytestmark = pytest.mark.usefixtures("seed")
N, C, WIDTH = 120, 4, 32


class Net(nn.Module):
    """Blocks that average over neighbours; nothing in its names tells."""

    def __init__(self, depth, links, place):
        super().__init__()
        sizes = [16, *[WIDTH] * depth]
        self.blocks = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
        self.out = nn.Linear(WIDTH, C)
        if place == "buffer":
            self.register_buffer("links", links)
        self.outside = [links]

    def forward(self, x, links=None):
        links = self.outside[0] if links is None else links
        for block in self.blocks:
            x = torch.relu(torch.sparse.mm(links, block(x)))
        return self.out(x)


def communities():
    """Return features, sparse normalised adjacency and labels of four communities."""
    labels = torch.arange(N) % C
    likely = torch.where(labels[:, None] == labels, 0.15, 0.04)
    links = (torch.rand(N, N) < likely).float().triu(1)
    links = links + links.T + torch.eye(N)
    root = links.sum(1).sqrt()
    links = (links / root[:, None] / root).to_sparse()
    return torch.randn(N, 16) + 1.6 * F.one_hot(labels, 16), links, labels


def train(depth, place, steps):
    x, links, labels = communities()
    model = Net(depth, links, place)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            given = (x, links) if place == "argument" else (x,)
            loss = F.cross_entropy(model(*given), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    return dbg


@pytest.mark.parametrize("place", ["argument", "buffer", "outside"])
def test_sixteen_hops_over_a_sparse_graph_are_too_smooth(place):
    dbg = train(16, place, steps=110)
    assert dbg.explain_failure()[0].cause == "oversmoothing", dbg.summary()


@pytest.mark.parametrize("place", ["argument", "buffer", "outside"])
def test_two_hops_over_a_sparse_graph_are_quiet(place):
    dbg = train(2, place, steps=60)
    assert dbg.loss_history[-1] < 0.3
    assert dbg.explain_failure() == [], dbg.summary()
