# SPDX-License-Identifier: MIT
"""Runs that are changed in the middle by their own loop: to their harm, and not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

AT, STEPS = 220, 440


def run(model, batch, penalty=lambda _step, _hidden: 0.0, *, optimizers, rates=None, clip=None):
    """Train; `optimizers` are (first step, optimizer), `clip` the steps that clip. The session."""
    body, head = model
    with NeuralDbg(model) as dbg:
        for step in range(STEPS):
            optimizer = [one for since, one in optimizers if step >= since][-1]
            if rates is not None:
                optimizer.param_groups[0]["lr"] = rates(step)
            x, y = batch(step)
            hidden = body(x)
            guess = head(hidden[0] if isinstance(hidden, tuple) else hidden)
            is_class = y.dtype == torch.int64
            loss = F.cross_entropy(guess, y) if is_class else F.mse_loss(guess, y)
            loss = loss + penalty(step, hidden)
            optimizer.zero_grad()
            loss.backward()
            if clip is not None and step < clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            dbg.record_loss(loss.item())
    return dbg


def network(outputs):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    return nn.Sequential(body, nn.Linear(64, outputs))


def clusters(shift=0.0):
    centres = 1.5 * torch.randn(5, 10, generator=torch.Generator().manual_seed(3)) + shift

    def batch(_step):
        y = torch.randint(5, (48,))
        return centres[y] + torch.randn(48, 10), y

    return batch


def cycle(second):
    """Rates of two cycles, of which the second rises to `second`."""

    def rate(step):
        place, peak = (step, 0.1) if step < AT else (step - AT, second)
        rise = AT // 5
        return peak * ((place + 1) / rise if place < rise else 1 - (place - rise) / (AT - rise))

    return rate


@pytest.mark.parametrize(("second", "is_lost"), [(8.0, True), (0.1, False)])
def test_second_cycle_of_the_rate_that_rises_far_above_the_first(second, is_lost):
    model = network(5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = run(
        model, clusters(), optimizers=[(0, optimizer)], rates=cycle(second)
    ).explain_failure()
    if not is_lost:
        assert found == []
        return
    assert found[0].cause == "lr_too_high"
    assert AT <= found[0].onset <= AT + AT // 5


def letters(step):
    """Texts that step through an alphabet; from `AT` on they are four times as long."""
    length = 8 if step < AT else 32
    start, stride = torch.randint(12, (24, 1)), torch.randint(1, 4, (24, 1))
    line = (start + stride * torch.arange(length + 1)) % 12
    return F.one_hot(line[:, :-1], 12).float(), F.one_hot(line[:, 1:], 12).float()


@pytest.mark.parametrize(("clip", "explodes"), [(AT, True), (STEPS, False)])
def test_recurrence_on_longer_sequences_once_clipping_has_ended(clip, explodes):
    torch.manual_seed(0)
    rnn = nn.RNN(12, 48, nonlinearity="relu", batch_first=True)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(torch.eye(48))
    model = nn.ModuleList([rnn, nn.Linear(48, 12)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    found = run(model, letters, optimizers=[(0, optimizer)], clip=clip).explain_failure()
    if not explodes:
        assert found == []
        return
    assert (found[0].cause, found[0].layer) == ("missing_gradient_clipping", "0")
    assert AT <= found[0].onset <= AT + 5


def line(_step):
    x = torch.randn(48, 10)
    return x, (x[:, :1] - x[:, 1:2].abs())


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_penalty_that_is_switched_on_with_either_sign(sign):
    model = network(1)
    found = run(
        model,
        line,
        lambda step, hidden: sign * 0.05 * hidden.square().mean() if step >= AT else 0.0,
        optimizers=[(0, torch.optim.Adam(model.parameters(), lr=5e-3))],
    ).explain_failure()
    if sign > 0:
        assert found == []
        return
    assert found[0].cause == "wrong_loss_sign"
    assert abs(found[0].onset - AT) <= 1


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_second_loop_with_an_optimizer_of_its_own_and_other_data(kind):
    model = network(1)

    def batch(step):
        x, y = line(step)
        return x, y if step < AT else y + x[:, 2:3].cos()

    pair = [(since, kind(model.parameters(), lr=rate)) for since, rate in ((0, 3e-2), (AT, 1e-2))]
    for _, optimizer in pair:
        optimizer.param_groups[0]["lr"] *= 0.1 if kind is torch.optim.AdamW else 1.0
    assert run(model, batch, optimizers=pair).explain_failure() == []


def test_rehearsal_on_one_batch_before_the_data():
    model, real = network(5), clusters(shift=2.0)
    one = torch.randn(32, 10), torch.randint(5, (32,))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    found = run(
        model, lambda step: one if step < AT else real(step), optimizers=[(0, optimizer)]
    ).explain_failure()
    assert found == []
