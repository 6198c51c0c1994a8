# SPDX-License-Identifier: MIT
"""Figures that come late: in order, bounded, with the verdict of those that are read at once."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from late import Delayed, late
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.readback import QUEUE, Readback

STEPS, AT = 44, 20


class Log(nn.Module):
    """The logarithm, of what is negative once `shift` is large."""

    shift = 0.0

    def forward(self, x):
        return (x.square() + 1.0 - self.shift).log()


def train(lag=None, fault=None, *, stop=None, **options):
    """Train a small network, read late or at once; return the session, its facts and weights."""
    facts = []

    class Session(NeuralDbg):
        def _on_step(self, one):
            facts.append(one)
            return super()._on_step(one)

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), Log(), nn.Linear(24, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    lagging = late(lag) if lag is not None else contextlib.nullcontext()
    with lagging, Session(model, overhead=1.0, **options) as dbg:
        for step in range(STEPS):
            if fault and step == AT:
                fault(model, optimizer)
            x = torch.randn(16, 6)
            loss = F.mse_loss(model(x), x[:, :2].sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            dbg.record_loss(loss)
            if stop:
                stop(step, dbg)
    return dbg, facts, [p.detach().clone() for p in model.parameters()]


def jump(model, optimizer):
    optimizer.param_groups[0]["lr"] *= 1000.0


def kill(model, optimizer):
    with torch.no_grad():
        model[2].bias.sub_(1000.0)


def negative(model, optimizer):
    model[4].shift = 1e6


@pytest.mark.parametrize("fault", [None, jump, kill, negative])
def test_late_figures_give_the_verdict_of_early_ones_and_the_same_weights(fault):
    early, _, ours = train(None, fault)
    behind, _, theirs = train(3, fault)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.nan_to_num(7), b.nan_to_num(7))
    first, second = (dbg.explain_failure()[:1] for dbg in (early, behind))
    assert [(h.failure_type, h.layer, h.onset) for h in first] == [
        (h.failure_type, h.layer, h.onset) for h in second
    ]
    assert bool(first) is (fault is not None)


def test_late_figures_are_the_same_figures():
    _, early, _ = train()
    _, behind, _ = train(3)
    assert [one.step for one in behind] == list(range(STEPS))
    for a, b in zip(early, behind, strict=True):
        assert dict(a.losses) == dict(b.losses)
        assert repr(a.ledger) == repr(b.ledger)
        assert a.observations == b.observations
        for name in ("activation", "parameter", "inputs", "optimizer"):
            assert np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True), name


def test_a_nan_is_told_late_with_its_module_and_what_would_name_its_operation():
    dbg, _, _ = train(3, negative)
    first = dbg.explain_failure()[0]
    assert (first.layer, first.onset) == ("4", AT)
    assert "sync=True names the operation" in str(first)
    assert "log" not in str(first)


def test_sync_reads_each_step_on_the_spot_and_names_the_operation():
    dbg, _, _ = train(3, negative, sync=True)
    first = dbg.explain_failure()[0]
    assert (first.layer, first.onset, first.cause) == ("4", AT, "log_of_nonpositive")


def test_whoever_asks_is_told_of_every_step_that_is_over():
    seen = {}

    def stop(step, dbg):
        if step == 30:
            seen["steps"] = len(dbg.loss_history)

    train(5, stop=stop)
    assert seen == {"steps": 30}


def test_an_exception_leaves_no_step_behind():
    class LoopError(Exception):
        pass

    held = []

    def stop(step, dbg):
        held.append(dbg)
        if step == 12:
            raise LoopError

    with pytest.raises(LoopError):
        train(6, stop=stop)
    assert held[0].trace.step_count == 13


def test_at_most_so_many_steps_are_under_way():
    readback, heard = Readback(), []
    readback.carrier = Delayed(lag=10**6)
    for step in range(QUEUE + 3):
        readback.read(torch.tensor([float(step)]), lambda host: heard.append(host.item()))
        readback.ship()
    assert heard == [0.0, 1.0, 2.0]
    readback.drain()
    assert heard == [float(step) for step in range(QUEUE + 3)]


def test_a_read_takes_the_value_of_its_moment_and_keeps_its_place():
    readback, heard = Readback(), []
    readback.carrier = Delayed(lag=0)
    value = torch.zeros(2, 2)
    readback.read(value, lambda host: heard.append(host.tolist()))
    readback.then(lambda: heard.append("then"))
    number = readback.number(torch.tensor(6.0, dtype=torch.float64), over=3.0)
    value.fill_(9.0)
    assert heard == []
    readback.ship()
    assert heard == [[[0.0, 0.0], [0.0, 0.0]], "then"]
    assert float(number) == 2.0


def test_a_model_that_moves_after_the_session_opened_is_followed():
    model = nn.Linear(3, 1)
    with NeuralDbg(model) as dbg:
        board = dbg._recorder.board
        before = board.taps[0].row
        dbg._recorder._device = torch.device("meta")  # as if it had been there
        model(torch.ones(2, 3)).sum().backward()
        assert dbg._recorder._device == torch.device("cpu")
        assert board.taps[0].row.data_ptr() == board.figures[0].data_ptr()
        assert before.device == board.taps[0].row.device
