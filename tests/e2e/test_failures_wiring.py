# SPDX-License-Identifier: MIT
"""Loops that are wired wrongly, and look-alikes that are meant."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg


def regression(count):
    x = torch.randn(count, 6)
    return x, torch.sin(x[:, :1]) + 0.5 * x[:, 1:2]


def two_phases(*, resume):
    """Train, then go on with a new optimizer, with or without the state of the old one."""
    model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    losses = []
    with NeuralDbg(model) as dbg:
        for step in range(240):
            if step == 180:
                state = optimizer.state_dict()
                optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
                if resume:
                    optimizer.load_state_dict(state)
            x, y = regression(64)
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            losses.append(loss.item())
    return dbg, losses


def test_moments_that_begin_anew_are_named_where_the_loss_leaps():
    dbg, losses = two_phases(resume=False)
    assert max(losses[180:190]) > 3 * sum(losses[160:180]) / 20
    first = dbg.explain_failure()[0]
    assert first.cause == "resume_without_optimizer_state"
    assert abs(first.onset - 180) <= 1


def test_a_resumed_state_is_no_failure():
    dbg, _ = two_phases(resume=True)
    assert dbg.explain_failure() == []


def classify(model, optimizer, steps=120):
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            x = torch.randn(48, 6)
            loss = F.cross_entropy(model(x), (x[:, 0] > 0).long() + (x[:, 1] > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    return dbg


def test_a_head_replaced_after_the_optimizer_was_made_is_named():
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model[2] = nn.Linear(32, 3)
    first = classify(model, optimizer).explain_failure("training_wiring")[0]
    assert first.cause in {"stale_optimizer_parameters", "parameters_not_in_optimizer"}
    assert (first.layer, first.onset) == ("2", 0)


@pytest.mark.parametrize("maximize", [True, False])
def test_a_loss_that_is_maximised_has_the_wrong_sign(maximize):
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, maximize=maximize)
    causes = [h.cause for h in classify(model, optimizer).explain_failure()]
    assert causes[:1] == (["wrong_loss_sign"] if maximize else [])
