# SPDX-License-Identifier: MIT
"""Faults that begin in the middle of a run that had learned, on steps that may be thinned."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

AT, STEPS = 230, 460


def train(fault, *, is_regression, seed):
    """Train a network of 11 inputs; `fault` begins at step `AT`. Returns the session."""
    torch.manual_seed(seed)
    data = torch.randn(4096, 11)
    score = data[:, 0] * 1.5 + data[:, 1].sin() - data[:, 2].abs()
    target = score[:, None] if is_regression else (score > 0.2).long()
    model = nn.Sequential(
        nn.Linear(11, 192), nn.ReLU(), nn.Dropout(0.05), nn.Linear(192, 192), nn.ReLU(),
        nn.Linear(192, 1 if is_regression else 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    with NeuralDbg(model) as dbg:
        for step in range(STEPS):
            is_on = step >= AT
            rows = torch.randint(0, 4096, (128,))
            x, y = data[rows], target[rows]
            if step == AT:
                once(fault, model, optimizer)
            if is_on and fault == "labels":
                y = y[torch.randperm(128)]
            if is_on and fault == "blank":
                x = torch.zeros_like(x)
            guess = model(x)
            loss = F.mse_loss(guess, y) if is_regression else F.cross_entropy(guess, y)
            if not (is_on and fault == "not cleared"):
                optimizer.zero_grad()
            loss.backward()
            if is_on and fault == "cleared too soon":
                optimizer.zero_grad()
            if not (is_on and fault == "no step"):
                optimizer.step()
            dbg.record_loss(loss.item())
    return dbg


def once(fault, model, optimizer):
    """Change what is changed once."""
    if fault == "rate":
        optimizer.param_groups[0]["lr"] *= 400
    if fault == "eval":
        model.eval()
    if fault == "freeze":
        model[0].requires_grad_(requires_grad=False)


CAUSES = {
    "blank": ("constant_input", AT),
    "not cleared": ("missing_zero_grad", AT - 1),
    "cleared too soon": ("zero_grad_before_step", AT),
    "no step": ("missing_optimizer_step", AT),
    "rate": ("lr_too_high", AT),
    "eval": ("eval_mode_in_training", AT),
}


EITHER = [(fault, is_regression) for fault in CAUSES for is_regression in (True, False)]


@pytest.mark.parametrize(("fault", "is_regression"), [*EITHER, ("labels", False)])
def test_a_fault_that_begins_midway_is_named_from_its_step_on(fault, is_regression):
    first = train(fault, is_regression=is_regression, seed=0).explain_failure()[0]
    cause, step = CAUSES.get(fault, ("labels_unrelated_to_inputs", AT))
    assert first.cause == cause
    assert abs(first.onset - step) <= 1


@pytest.mark.parametrize("change", ["nothing", "freeze"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_part_that_is_frozen_midway_has_no_gradient_that_faded(change, seed):
    assert train(change, is_regression=False, seed=seed).explain_failure() == []


def test_of_numbers_that_no_longer_follow_nothing_is_said():
    """They may be the targets that another network sets."""
    assert train("labels", is_regression=True, seed=0).explain_failure() == []
