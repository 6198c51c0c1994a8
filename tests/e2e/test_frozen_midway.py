# SPDX-License-Identifier: MIT
"""Parameters that are frozen or thawed in mid-run, on steps that may be thinned."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.budget import Budget

AT, STEPS = 240, 520


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.body(x))


def task(count, *, is_hard):
    """Return inputs and classes: by the sign of two inputs, or by products of two others each."""
    x = torch.randn(count, 12)
    pairs = (x[:, 0] * x[:, 1], x[:, 2] * x[:, 3]) if is_hard else (x[:, 4], x[:, 5])
    return x, (pairs[0] > 0).long() + 2 * (pairs[1] > 0).long()


def switch(model, *, is_on):
    model.body.requires_grad_(requires_grad=is_on)


def train(change, *, starts_frozen, has_stages=False, overhead=0.05):
    """Train on; `change(model, optimizer)` is called before step `AT` and may give an optimizer."""
    torch.manual_seed(0)
    model = Net()
    switch(model, is_on=not starts_frozen)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=3e-3)
    losses = []
    with NeuralDbg(model, overhead=overhead) as dbg:
        for step in range(STEPS):
            if step == AT:
                optimizer = change(model, optimizer) or optimizer
            x, y = task(128, is_hard=has_stages and step >= AT)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    assert not dbg.trace.run.warnings
    assert dbg.trace.last_step == STEPS - 1
    return dbg, losses


def thaw(model, _):
    switch(model, is_on=True)


def thaw_and_add(model, optimizer):
    switch(model, is_on=True)
    optimizer.add_param_group({"params": list(model.body.parameters()), "lr": 3e-3})


def thaw_and_make_anew(model, _):
    switch(model, is_on=True)
    return torch.optim.Adam(model.parameters(), lr=3e-3)


def freeze(model, _):
    switch(model, is_on=False)


@pytest.mark.parametrize("overhead", [0.001, 0.05, 1.0])
def test_thawed_parameters_that_no_optimizer_was_told_of_are_named_from_that_step_on(overhead):
    dbg, _ = train(thaw, starts_frozen=True, overhead=overhead)
    first = dbg.explain_failure()[0]
    assert (first.cause, first.layer) == ("parameters_not_in_optimizer", "body.0")
    assert first.onset == AT


@pytest.mark.parametrize("overhead", [0.001, 0.05, 1.0])
@pytest.mark.parametrize("change", [thaw_and_add, thaw_and_make_anew])
def test_thawed_parameters_that_are_stepped_are_quiet(change, overhead):
    dbg, losses = train(change, starts_frozen=True, overhead=overhead)
    assert losses[-1] < 0.5 * losses[AT - 1]
    assert dbg.explain_failure() == []
    held = {name for one in dbg.trace.run.optimizers for name in one.parameters}
    assert "body.0.weight" in held


def test_what_is_thawed_just_after_a_full_step_is_named_from_that_step_on(monkeypatch):
    begin, stretch = Budget._begin, Budget.stretch.fget
    monkeypatch.setattr(
        Budget, "_begin", lambda b, *, is_paid: begin(b, is_paid=is_paid or b._ordinal == AT - 1)
    )

    def until(budget):
        return min(stretch(budget), max(AT - 1 - budget._ordinal, 0) or 1_000)

    monkeypatch.setattr(Budget, "stretch", property(until))
    dbg, _ = train(thaw, starts_frozen=True, overhead=0.05)
    first = dbg.explain_failure()[0]
    assert (first.cause, first.onset) == ("parameters_not_in_optimizer", AT)


@pytest.mark.parametrize("overhead", [0.001, 0.05, 1.0])
def test_parts_that_stay_frozen_while_the_task_changes_are_named(overhead):
    dbg, losses = train(freeze, starts_frozen=False, has_stages=True, overhead=overhead)
    assert losses[-1] > 3 * losses[AT - 1]
    first = dbg.explain_failure()[0]
    assert (first.cause, first.layer) == ("frozen_parameters", "body.0")
    assert first.onset == AT


@pytest.mark.parametrize("is_undone", [True, False])
def test_a_freeze_that_harms_nothing_is_quiet(is_undone):
    def change(model, _):
        freeze(model, _)
        if is_undone:
            x, _y = task(64, is_hard=False)
            model.body(x)
            thaw(model, _)

    dbg, _ = train(change, starts_frozen=False)
    assert dbg.explain_failure() == []


def test_flags_that_change_by_habit_tell_nothing():
    """Two players of one model switch each other off on every step."""
    torch.manual_seed(0)
    model = Net()
    players = model.body, model.head
    optimizers = [torch.optim.Adam(p.parameters(), lr=1e-3) for p in players]
    with NeuralDbg(model) as dbg:
        for step in range(120):
            for place, player in enumerate(players):
                player.requires_grad_(requires_grad=place == step % 2)
            x, y = task(64, is_hard=False)
            loss = F.cross_entropy(model(x), y)
            optimizers[step % 2].zero_grad()
            loss.backward()
            optimizers[step % 2].step()
            dbg.record_loss(loss)
    assert dbg.explain_failure() == []
    flags = [o for o in dbg.trace.observations if o.kind in {"thawed", "frozen_midway"}]
    assert len(flags) <= 8
