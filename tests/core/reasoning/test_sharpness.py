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


LIMITS = {"momentum": 2 * (1 + 0.9), "adam": 2 * (1 + 0.9) / (1 - 0.9)}
"""lr times (preconditioned) sharpness at which each is unstable on a quadratic, with a decay of 0.9
of its first moment (Cohen et al. 2021, equation 1; Cohen et al. 2022, section 2)."""


def share_along_updates(kind, lr, steps=100):
    """Return the last losses, and the largest share of the limit along any update of a run.

    The slow twin: whole gradients and updates, and Adam's own preconditioner.
    """
    torch.manual_seed(0)
    x = torch.randn(512, 16)
    y = (x[:, :4] @ torch.randn(4, 3) + 0.5 * torch.sin(3 * x[:, 4:7])).argmax(1)
    model = nn.Sequential(
        nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3)
    )
    parameters = list(model.parameters())
    optimizer = (
        torch.optim.SGD(parameters, lr=lr, momentum=0.9)
        if kind == "momentum"
        else torch.optim.Adam(parameters, lr=lr)
    )

    def flat(tensors):
        return torch.cat([t.detach().flatten() for t in tensors]).double()

    before, largest, losses = None, 0.0, []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        losses.append(loss.item())
        gradient, weights = flat(p.grad for p in parameters), flat(parameters)
        if before is not None:
            old, update, rate = before
            curvature = ((gradient - old) * update).sum() / (update.square() / rate).sum()
            largest = max(largest, float(curvature) / LIMITS[kind])
        optimizer.step()
        rate = torch.full_like(gradient, lr)
        if kind == "adam":
            second = flat(optimizer.state[p]["exp_avg_sq"] for p in parameters) / (1 - 0.999**step)
            rate = lr / (second.sqrt() + 1e-8) / (1 - 0.9**step)
        before = gradient, flat(parameters) - weights, rate
    return losses, largest


@pytest.mark.parametrize(("kind", "good", "bad"), [("momentum", 2.0, 5.0), ("adam", 0.3, 10.0)])
def test_along_updates_of_momentum_and_adam_curvature_tells_nothing(kind, good, bad):
    learned, at_good = share_along_updates(kind, good)
    lost, at_bad = share_along_updates(kind, bad)
    assert learned[-1] < 0.1 * learned[0]
    assert lost[-1] > 0.9 * lost[0]
    assert max(at_good, at_bad) < 0.8  # a limit that even the wrecked run never reaches ...
    assert at_bad < 2 * at_good  # ... and a share that does not tell the two apart
