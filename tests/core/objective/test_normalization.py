# SPDX-License-Identifier: MIT
"""Batch normalisation against its running statistics, in train and in eval mode."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg


def notes(*, momentum=0.1, is_eval=False, size=32, steps=40, shift=4.0):
    """Train a small net on inputs of mean `shift`; return its `normalization` observations."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(3, momentum=momentum), nn.Linear(3, 8), nn.Linear(8, 1))
    model.train(not is_eval)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    dbg = NeuralDbg(model)
    with dbg:
        for _ in range(steps):
            x = torch.randn(size, 3) + shift
            loss = nn.functional.mse_loss(model(x), x[:, :1] - shift)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    return [o for o in dbg.trace.observations if o.kind == "normalization"]


def test_gap_closes_as_running_statistics_follow():
    found = notes(momentum=0.5)
    assert {o.layer for o in found} == {"0"}
    assert found[0].figures["values"] == 32
    assert found[0].figures["mean_gap"] > 1
    assert found[-1].figures["mean_gap"] < 0.5
    assert found[-1].figures["training"] == 1


def test_gap_stays_where_running_statistics_are_hardly_moved():
    found = notes(momentum=1e-4)
    assert found[-1].figures["mean_gap"] == pytest.approx(4.0, rel=0.2)


def test_eval_mode_is_compared_with_the_batch_itself():
    found = notes(is_eval=True, shift=3.0)
    assert found[0].figures["training"] == 0
    assert found[0].figures["mean_gap"] == pytest.approx(3.0, rel=0.2)
