# SPDX-License-Identifier: MIT
"""Scales of normalisation layers that go to zero, and look-alikes that are meant."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg


class Root(nn.Module):
    """A root mean square normalisation written by hand, under a name that says nothing."""

    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.gain


def grouped(size):
    return nn.GroupNorm(4, size)


NORMS = [nn.BatchNorm1d, nn.LayerNorm, nn.RMSNorm, grouped, Root]
norms = pytest.mark.parametrize("norm", NORMS)
some = pytest.mark.parametrize("norm", [nn.BatchNorm1d, Root])


class Branch(nn.Module):
    def __init__(self, size, norm):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(size, size), norm(size), nn.ReLU(), nn.Linear(size, size), norm(size)
        )
        nn.init.zeros_(next(self.body[4].parameters()))

    def forward(self, x):
        return torch.relu(x + self.body(x))


def plain(norm):
    first, second = (
        (nn.Linear(8, 32), norm(32), nn.ReLU()),
        (nn.Linear(32, 32), norm(32), nn.ReLU()),
    )
    return nn.Sequential(*first, *second, nn.Linear(32, 4))


def residual(norm):
    return nn.Sequential(nn.Linear(8, 32), Branch(32, norm), Branch(32, norm), nn.Linear(32, 4))


def scales(model):
    return [p for n, p in model.named_parameters() if p.dim() == 1 and not n.endswith("bias")]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def train(model, optimizer, steps=160, write=None):
    # All that the budget can be given: events of thinned steps are later ones.
    with NeuralDbg(model, overhead=1.0) as dbg:
        for step in range(steps):
            x = torch.randn(64, 8)
            loss = F.cross_entropy(model(x), (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            if write is not None:
                with torch.no_grad():
                    write(step, scales(model))
    return dbg


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=3e-3)


def told(dbg):
    return [e.layer for e in dbg.events if e.detector == "norm_scale"]


@norms
def test_decay_that_takes_the_scales_is_named(norm):
    model = plain(norm)
    own = scales(model)
    others = [p for p in model.parameters() if all(p is not one for one in own)]
    groups = [{"params": own, "weight_decay": 15.0}, {"params": others}]
    dbg = train(model, torch.optim.SGD(groups, lr=0.02))
    assert min(one.square().mean() for one in own) < 1e-6
    first = dbg.explain_failure()[0]
    assert (first.cause, first.onset) == ("weight_decay_too_high", 0)
    assert first.layer in {"1", "4"}
    assert first.layer in told(dbg)


@norms
def test_a_scale_that_something_else_sets_to_zero_is_told_with_its_step(norm):
    def write(step, own):
        if step >= 60:
            own[0].zero_()

    model = plain(norm)
    dbg = train(model, adam(model), write=write)
    first = dbg.explain_failure()[0]
    assert (str(first.failure_type), first.layer) == ("vanishing_gradients", "1")
    assert abs(first.onset - 61) <= 1
    assert "no decay of the optimizer does that" in first.description
    assert told(dbg) == ["1"]


@some
def test_branches_that_start_at_zero_are_quiet(norm):
    model = residual(norm)
    dbg = train(model, adam(model))
    assert dbg.explain_failure() == []
    assert told(dbg) == []


@some
def test_pruned_scales_and_one_that_recovers_are_quiet(norm):
    def write(step, own):
        if step == 40:
            own[1].zero_()
        if step >= 60:
            own[0][:24] = 0

    model = plain(norm)
    dbg = train(model, adam(model), write=write)
    assert dbg.explain_failure() == []
    assert told(dbg) == []


def test_a_whole_branch_pruned_from_a_run_that_has_learned_is_no_failure():
    def write(step, own):
        if step >= 100:
            own[-1].zero_()

    model = residual(nn.LayerNorm)
    dbg = train(model, adam(model), write=write)
    assert told(dbg) == ["2.body.4"]
    assert dbg.explain_failure() == []
