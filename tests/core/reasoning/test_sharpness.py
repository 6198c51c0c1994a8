# SPDX-License-Identifier: MIT
"""lr x sharpness against the curvature that is known: that of a quadratic."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.reasoning.sharpness import lr_times_sharpness
from neuraldbg.reasoning.view import CaseView


def descend(lr, *, steps=12, **options):
    """Minimise 2 |Wx|^2 over orthonormal x, whose curvature is 4 in every direction."""
    torch.manual_seed(0)
    model = nn.Linear(6, 6, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, **options)
    dbg = NeuralDbg(model)
    with dbg:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = 2 * model(torch.eye(6)).square().sum()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    return dbg


@pytest.mark.parametrize("lr", [0.05, 0.3, 0.6])
def test_lr_times_sharpness_is_lr_times_the_curvature(lr):
    sharp = lr_times_sharpness(CaseView(descend(lr).trace))
    assert sharp[1:6] == pytest.approx([4 * lr] * 5, rel=0.02)


def test_other_directions_than_the_gradient_are_not_judged():
    sharp = lr_times_sharpness(CaseView(descend(0.05, momentum=0.9).trace))
    assert not (sharp == sharp).any()  # noqa: PLR0124 - all NaN


def test_descent_beyond_the_edge_says_so():
    found = descend(0.6, steps=40).explain_failure()
    assert found[0].cause == "lr_too_high"
    assert "lr times sharpness was 2.4 (stable below 2)" in str(found[0])
