# SPDX-License-Identifier: MIT
"""Networks over a graph are known as such, wherever the graph comes from; others are not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

N, C = 24, 5
RING = torch.eye(N) + torch.eye(N).roll(1, 0)
PAIRS = RING.nonzero().T


SOURCE, TARGET = PAIRS
PLACE = TARGET[:, None].expand(-1, C)
MIXED = {
    "dense": lambda h: RING @ h,
    "sparse": lambda h: torch.sparse.mm(RING.to_sparse(), h),
    "batched": lambda h: (RING[None] @ h[None])[0],
    "edges": lambda h: torch.zeros_like(h).index_add(0, TARGET, h[SOURCE]),
    "scattered": lambda h: torch.zeros_like(h).scatter_add(0, PLACE, h[SOURCE]),
    "reduced": lambda h: torch.zeros_like(h).scatter_reduce(0, PLACE, h[SOURCE], "mean"),
}
FIXED = nn.Parameter(RING.clone(), requires_grad=False)
OTHER = {
    "a frozen weight": lambda h: FIXED @ h,
    "a permutation": lambda h: torch.zeros_like(h).index_add(0, torch.randperm(N), h),
    "a matrix over features": lambda h: h @ torch.eye(C),
    "nothing": lambda h: h,
}


class Hop(nn.Module):
    def __init__(self, mix):
        super().__init__()
        self.lin, self.mix = nn.Linear(C, C), mix

    def forward(self, x):
        return self.mix(self.lin(x))


class Learned(Hop):
    def __init__(self):
        super().__init__(lambda h: self.relations @ h)
        self.relations = nn.Parameter(RING.clone())


def notes(run_audit, hops):
    torch.manual_seed(0)
    model = nn.Sequential(*hops, nn.Linear(C, 3))
    x, y = torch.randn(N, C), torch.randint(0, 3, (N,))

    def losses(_step):
        yield nn.functional.cross_entropy(model(x), y), [model]

    return run_audit(model, losses, steps=2).get("message_passing")


@pytest.mark.parametrize("how", MIXED)
def test_rows_that_are_mixed_along_relations_are_told(run_audit, how):
    found = notes(run_audit, [Hop(MIXED[how]), nn.ReLU(), Hop(MIXED[how])])
    assert found.figures == {"confidence": 1.0, "hops": 2.0, "nodes": float(N)}


@pytest.mark.parametrize("how", OTHER)
def test_rows_that_are_not_are_no_nodes(run_audit, how):
    assert notes(run_audit, [Hop(OTHER[how]), nn.ReLU(), Hop(OTHER[how])]) is None


def test_relations_that_are_learned_are_no_graph(run_audit):
    assert notes(run_audit, [Learned(), nn.ReLU(), Learned()]) is None


def test_one_product_may_be_a_pooling(run_audit):
    assert notes(run_audit, [Hop(MIXED["dense"])]) is None
