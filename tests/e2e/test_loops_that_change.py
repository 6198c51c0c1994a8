# SPDX-License-Identifier: MIT
"""Loops that change in mid-run, rightly or wrongly, on steps that may be thinned."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.sentry import Sentry

AT, STEPS = 300, 520


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)
    )


def batch():
    x = torch.randn(32, 8)
    return x, (x.sum(1) > 0).long()


def train(model, body, *, steps=STEPS, optimizer=None, overhead=0.05):
    """Call `body(step, x, y)`, which returns the loss after `backward`, and step."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    with NeuralDbg(model, overhead=overhead) as dbg:
        for step in range(steps):
            loss = body(step, *batch(), optimizer)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return dbg, losses


def plain(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    return loss


def check_counts(dbg, losses):
    assert dbg.trace.last_step == len(losses) - 1
    assert dbg.loss_history == pytest.approx(losses)
    assert not dbg.trace.run.warnings


@pytest.mark.parametrize("at", [70, AT, AT + 1, AT + 7])
def test_a_layer_that_grows_in_place_trains_on(at):
    """What is left of the graph of the step before must not keep the shapes of its parameters."""
    model = net()

    def body(step, x, y, optimizer):
        if step == at:
            head = model[4]
            head.weight.data = torch.cat([head.weight.data, torch.zeros(2, 16)])
            head.bias.data = torch.cat([head.bias.data, torch.zeros(2)])
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        return loss.detach()

    dbg, losses = train(model, body, steps=at + 5)
    assert dbg.trace.last_step == len(losses) - 1


@pytest.mark.parametrize("at", [AT, AT + 1])
def test_steps_of_a_head_on_features_without_gradients_are_counted(at):
    model = net()

    def body(step, x, y, optimizer):
        if step < at:
            return plain(model, optimizer, x, y)
        with torch.no_grad():
            features = model[:2](x)
        loss = F.cross_entropy(model[2:](features), y)
        optimizer.zero_grad()
        loss.backward()
        return loss

    check_counts(*train(model, body))


@pytest.mark.parametrize("every", [1, 11, 50])
@pytest.mark.parametrize("at", [0, AT])
def test_backwards_whose_gradients_are_thrown_away_are_no_missing_zero_grad(at, every):
    """Adversarial inputs, saliency maps: gradients are cleared before the backward that counts."""
    model = net()

    def body(step, x, y, optimizer):
        if step >= at and step % every == 0:
            x.requires_grad_()
            F.cross_entropy(model(x), y).backward()
            x = (x + 0.05 * x.grad.sign()).detach()
        return plain(model, optimizer, x, y)

    dbg, losses = train(model, body)
    check_counts(dbg, losses)
    assert dbg.explain_failure() == []


def test_gradients_that_add_up_over_two_backwards_are_still_told():
    model = net()

    def body(step, x, y, optimizer):
        loss = F.cross_entropy(model(x), y)
        if step < AT:
            optimizer.zero_grad()
        loss.backward()
        half = F.cross_entropy(model(x.flip(0)), y.flip(0))
        half.backward()
        return loss

    first = train(model, body)[0].explain_failure()[0]
    assert first.cause == "missing_zero_grad"
    assert abs(first.onset - AT) <= 1


def test_an_exception_of_a_signal_that_comes_while_ours_runs_reaches_the_loop(monkeypatch):
    class TimeIsUpError(Exception):
        pass

    def handler(*_):
        raise TimeIsUpError

    model, calls, caught = net(), [], []
    before, begin = signal.signal(signal.SIGUSR1, handler), Sentry.begin

    def interrupted(sentry):
        calls.append(1)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGUSR1)
        begin(sentry)

    monkeypatch.setattr(Sentry, "begin", interrupted)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    try:
        with NeuralDbg(model, overhead=0.001) as dbg:
            for step in range(STEPS):
                try:
                    loss = plain(model, optimizer, *batch())
                    optimizer.step()
                    dbg.record_loss(loss.item())
                except TimeIsUpError:
                    caught.append(step)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(caught) == 1
    assert dbg.trace.last_step >= STEPS - 3
    assert dbg.explain_failure() == []


def test_what_fails_inside_stays_inside_beside_a_signal_handler(monkeypatch):
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    monkeypatch.setattr(Sentry, "begin", lambda _: 1 / 0)
    model = net()
    try:
        train(model, lambda _, x, y, o: plain(model, o, x, y), overhead=0.001)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_parameters_that_an_optimizer_is_given_later_were_not_left_out():
    model = net()
    optimizer = torch.optim.SGD(model[4].parameters(), lr=0.05)

    def body(step, x, y, optimizer):
        if step == AT:
            optimizer.add_param_group({"params": [*model[0].parameters(), *model[2].parameters()]})
        return plain(model, optimizer, x, y)

    dbg, losses = train(model, body, optimizer=optimizer)
    check_counts(dbg, losses)
    assert "parameters_not_in_optimizer" not in {h.cause for h in dbg.explain_failure()}


def test_another_kind_of_optimizer_is_no_resume():
    model = net()
    optimizers = [
        torch.optim.Adam(model.parameters(), lr=1e-3),
        torch.optim.RMSprop(model.parameters(), lr=1e-3),
    ]
    with NeuralDbg(model) as dbg:
        for step in range(STEPS):
            loss = plain(model, optimizers[step >= AT], *batch())
            optimizers[step >= AT].step()
            dbg.record_loss(loss.item())
    assert "resume_without_optimizer_state" not in {h.cause for h in dbg.explain_failure()}


def test_an_array_of_one_number_is_a_loss():
    with NeuralDbg(net()) as dbg:
        dbg.record_loss(np.array([0.5]))
        dbg.record_loss(np.float32(0.25), "other")
    assert dbg.loss_history == [0.5]


@pytest.mark.parametrize("at", [100, AT])
def test_a_loss_that_is_cut_off_from_every_parameter_is_named(at):
    model = net()

    def body(step, x, y, optimizer):
        loss = F.cross_entropy(model(x), y)
        if step >= at:
            loss = loss.detach().requires_grad_()
        optimizer.zero_grad()
        loss.backward()
        return loss

    first = train(model, body)[0].explain_failure()[0]
    assert first.cause == "detached_graph"
    assert abs(first.onset - at) <= 1


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (lambda out, y: F.cross_entropy(out.softmax(1), y), "double_softmax"),
        (lambda out, y: -F.cross_entropy(out, y), "wrong_loss_sign"),
    ],
)
def test_what_only_an_audit_shows_is_dated_where_the_loss_leaves_its_band(wrong, cause):
    model = net()

    def body(step, x, y, optimizer):
        loss = (wrong if step >= AT else F.cross_entropy)(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        return loss

    first = train(model, body, steps=700)[0].explain_failure()[0]
    assert first.cause == cause
    assert first.onset_range[0] <= AT <= first.onset_range[1]
    assert abs(first.onset - AT) <= 1


def test_a_margin_that_all_samples_keep_needs_no_backward():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)

    def body(step, x, y, optimizer):
        x = x[:, :4] + 6 * (2 * y[:, None] - 1) * torch.tensor([1.0, 0, 0, 0])
        loss = torch.relu(1 - (2 * y - 1) * model(x)[:, 0]).mean()
        optimizer.zero_grad()
        if loss > 0:
            loss.backward()
        return loss.detach()

    dbg, losses = train(model, body, steps=400)
    assert sum(loss == 0 for loss in losses[-100:]) > 80
    assert dbg.explain_failure() == []


def test_a_layer_that_grows_after_a_step_was_left_out_trains_on():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with NeuralDbg(model) as dbg:
        for step in range(AT + 5):
            x, y = batch()
            loss = plain(model, optimizer, x, y)
            if step == AT:
                head = model[4]
                head.weight.data = torch.cat([head.weight.data, torch.zeros(2, 16)])
                head.bias.data = torch.cat([head.bias.data, torch.zeros(2)])
                optimizer.zero_grad()
                del loss
                loss = plain(model, optimizer, x, y)
            optimizer.step()
            dbg.record_loss(loss.item())
    assert dbg.trace.last_step == AT + 4
