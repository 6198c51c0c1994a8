# SPDX-License-Identifier: MIT
"""Terms that are always 0: told where that cannot be meant, silent where it can."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

N = 32


class Two(nn.Module):
    """A trunk with a head that the main loss reads, and one for the other term alone."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.main, self.other = nn.Linear(16, 3), nn.Linear(16, 4)

    def forward(self, x):
        hidden = self.trunk(x)
        return self.main(hidden), self.other(hidden)


def masked(out, target, mask):
    return ((out - target).square() * mask).sum() / mask.sum().clamp(min=1)


IDLE = {
    "mask of zeros": (lambda o, t: masked(o, t, (t > 99).float()), "an empty mask"),
    "no row picked": (
        lambda o, t: (o - t).square()[(t > 99).any(1)].sum() / N,
        "an empty mask",
    ),
    "where nothing holds": (
        lambda o, t: torch.where(t > 99, F.smooth_l1_loss(o, t, reduction="none"), 0.0).mean(),
        "an empty mask",
    ),
    "all filled": (
        lambda o, t: (o - t).abs().masked_fill(t < 99, 0.0).mean(),
        "an empty mask",
    ),
    "fused, with itself": (lambda o, _: F.mse_loss(o, o.detach()), "a comparison with itself"),
    "written out, with itself": (
        lambda o, _: (o - o.detach()).abs().mean(),
        "a comparison with itself",
    ),
    "an error that may not be positive": (
        lambda o, t: (o - t).square().mean(1).clamp(max=0).mean(),
        "a bound never left",
    ),
    "a norm with a wrong sign": (
        lambda o, _: F.relu(-2 * o.norm(dim=1)).mean(),
        "a bound never left",
    ),
}
SILENT = {
    "weight of 0": lambda o, t: 0.0 * F.mse_loss(o, t),
    "hinge that is met": lambda o, _: F.relu(o.abs() - 60).mean(),
    "margin that is met": lambda o, _: F.relu(1e-4 - o.norm(dim=1)).mean(),
    "mask that hides the half": lambda o, t: masked(o, t, (t > 0).float()),
    "error within its bound": lambda o, t: (o - t).square().mean(1).clamp(max=1e4).mean(),
    "free bits": lambda o, t: (o - t).square().mean(1).clamp(min=99.0).mean(),
}


def session(term, steps=24):
    torch.manual_seed(0)
    model = Two()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    rule, other = torch.randn(6, 3), torch.randn(6, 4)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            x = torch.randn(N, 6)
            scores, out = model(x)
            loss = F.cross_entropy(scores, (x @ rule).argmax(1)) + 0.5 * term(out, x @ other)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    return dbg


def notes(dbg):
    return [o for o in dbg.trace.observations if o.kind == "constant_term"]


@pytest.mark.parametrize("name", IDLE)
def test_term_that_is_always_zero_is_named_with_its_reason(name):
    term, reason = IDLE[name]
    dbg = session(term)
    (found,) = notes(dbg)
    assert (found.step, found.layer, found.words["reason"]) == (0, "other", reason)
    assert found.figures["alone"] == 2
    first = dbg.explain_failure()[0]
    assert (first.cause, first.layer, first.onset) == ("constant_loss_term", "other", 0)
    assert f"exactly 0 on every step: {reason}" in str(first)


@pytest.mark.parametrize("name", SILENT)
def test_term_that_may_be_zero_is_silent(name):
    assert notes(session(SILENT[name])) == []


def test_mask_that_waits_for_its_samples_is_quiet():
    seen = []

    def late(out, target):
        seen.append(1)
        return masked(out, target, (target > (99 if len(seen) < 40 else 0)).float())

    dbg = session(late, steps=120)
    assert [o.words["reason"] for o in notes(dbg)] == ["an empty mask"]
    assert dbg.explain_failure() == []


def test_empty_mask_over_what_another_term_trains_is_noted_and_quiet():
    dbg = session(lambda o, t: masked(o, t, (t > 99).float()) + F.l1_loss(o, t), steps=120)
    assert notes(dbg)[0].figures["alone"] == 0
    assert dbg.explain_failure() == []


def test_weights_that_are_held_to_where_they_start_and_do_not_move_are_silent():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 3))
    model[0].weight.data.zero_()
    start = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with NeuralDbg(model) as dbg:
        for _ in range(12):
            loss = F.mse_loss(model(torch.randn(N, 6)), torch.randn(N, 3))
            loss = loss + sum(
                (p - s).square().sum() for p, s in zip(model.parameters(), start, strict=True)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    assert notes(dbg) == []


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        (lambda o: F.relu(1e-4 - o.norm(dim=1)).mean(), "a bound never left"),
        (lambda o: masked(o, torch.ones_like(o), torch.zeros_like(o)), "an empty mask"),
    ],
)
def test_loss_that_is_all_zero_is_told_whatever_made_it(term, reason):
    torch.manual_seed(0)
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model) as dbg:
        for _ in range(30):
            loss = term(model(torch.randn(N, 6)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    assert notes(dbg)[0].words["reason"] == reason
    assert dbg.explain_failure()[0].cause == "constant_loss_term"
