# SPDX-License-Identifier: MIT
"""Encoders that learn to give one answer, and losses that keep them from it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

pytestmark = pytest.mark.usefixtures("seed")


def train(loss_of, steps=200):
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 24))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            x = torch.randn(64, 16)
            views = [model(x + 0.1 * torch.randn_like(x)) for _ in range(2)]
            loss = loss_of(*views)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    return dbg


def held_apart(first, second):
    """Pull views together, and each unit to a deviation of 1."""
    spread = sum(F.relu(1 - each.std(0)).mean() for each in (first, second))
    return F.mse_loss(first, second) + spread


@pytest.mark.parametrize(
    "pull",
    [F.mse_loss, F.smooth_l1_loss, lambda a, b: (a - b).square().mean()],
    ids=["fused", "smooth", "written out"],
)
def test_views_that_are_only_pulled_together_collapse(pull):
    first = train(pull).explain_failure()[0]
    assert (first.cause, first.layer) == ("embedding_collapse", "2")


def test_views_that_are_held_apart_too_are_quiet():
    dbg = train(held_apart)
    assert dbg.explain_failure() == [], dbg.summary()
