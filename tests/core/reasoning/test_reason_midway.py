# SPDX-License-Identifier: MIT
"""Faults that begin in a run that was learning, each beside a healthy run that looks like it."""

from __future__ import annotations

import math

import pytest
from traces import causes, falling, linear, record

from neuraldbg.reasoning import reason
from neuraldbg.schema.facts import (
    ActivationStat,
    InputStat,
    LedgerFacts,
    Observation,
    OptimizerStat,
    ParameterStat,
)
from neuraldbg.schema.run import INPUT, LayerInfo, LayerRole
from neuraldbg.testing import make_run

A, P, X, Z = ActivationStat, ParameterStat, InputStat, OptimizerStat
AT, STEPS = 100, 200
RUN = make_run("fc1", "fc2", "head")
LOOP = {"forwards": 1, "backwards": 1, "steps": 1, "batch_size": 32}


def first(trace):
    found = reason(trace)
    assert found, "nothing was found"
    return found[0].cause, found[0].onset


def rate(of):
    return lambda s: {("Adam", Z.LR): of(s), ("Adam", Z.LR_MIN): of(s)}


def climbing(lowest, highest):
    """A rate of 0.05 that falls to `lowest`, and from `AT` on climbs within 40 steps."""
    share = lambda s: min(max(s - AT, 0) / 40, 1.0)  # noqa: E731
    return rate(lambda s: 0.05 if s < 60 else lowest + (highest - lowest) * share(s))


UNSEEN = {(None, P.UPDATE_RMS): math.nan}
DEAD = {("fc2", A.SILENT_SHARE): 1.0, ("fc2", A.ZERO_SHARE): 1.0, ("fc2", A.MAX): 0.0}


def climbed(lr, *, is_lost):
    return record(
        RUN,
        count=STEPS,
        loss=lambda s: 2.3 if is_lost and s > AT + 20 else falling(s),
        optimizer=lr,
        parameter=UNSEEN,
        activation=lambda s: DEAD if is_lost and s > AT + 20 else {},
    )


def test_units_that_die_on_a_climb_of_the_rate_are_its_consequence():
    cause, onset = first(climbed(climbing(1e-3, 2.0), is_lost=True))
    assert cause == "lr_too_high"
    assert AT < onset <= AT + 20


def test_second_cycle_that_is_survived_or_returns_to_what_was_is_no_fault_of_the_rate():
    assert reason(climbed(climbing(1e-3, 2.0), is_lost=False)) == []
    assert "lr_too_high" not in causes(climbed(climbing(1e-3, 0.05), is_lost=True))


def recurrent():
    rnn = LayerInfo(path="rnn", kind="RNN", role=LayerRole.RECURRENT, order=0, parents=(INPUT,))
    return make_run(rnn, linear("head", 1, "rnn", is_output=True))


def unclipped(*, explodes):
    def loss(s):
        return (1.5e3 if s == AT + 1 else math.nan) if explodes and s > AT else falling(s)

    return record(
        recurrent(),
        count=STEPS if not explodes else AT + 20,
        loss=loss,
        ledger=lambda s: LedgerFacts(**LOOP, clips=int(s < AT)),
        parameter=lambda s: {
            (None, P.GRAD_NORM): 3e4 if explodes and s > AT else 0.5,
            **UNSEEN,
        },
    )


def test_recurrence_that_explodes_once_clipping_has_ended_is_no_outlier_of_the_targets():
    cause, onset = first(unclipped(explodes=True))
    assert cause == "missing_gradient_clipping"
    assert AT <= onset <= AT + 1
    assert reason(unclipped(explodes=False)) == []


def coded(*, leaps, told):
    """A variational code whose spread falls from `told` to nothing after `AT`."""
    run = make_run(
        linear("enc", 0, INPUT),
        linear("code", 1, "enc", units=4, is_output=True),
        linear("dec", 2, "code", is_output=True),
    )
    size = lambda s: told if s < AT else max(told * 0.9 ** (s - AT), 0.01)  # noqa: E731
    level = lambda s: (50.0 if leaps else 1.0) if s >= AT else falling(s)  # noqa: E731
    return record(
        run,
        count=STEPS,
        loss=level,
        activation=lambda s: {("code", A.RMS): size(s), ("dec", A.INPUT_RMS): 1.0},
    )


def test_code_that_went_when_its_price_was_raised_is_dated_there():
    assert first(coded(leaps=True, told=1.0)) == ("posterior_collapse", AT)


def test_code_that_never_told_anything_is_dated_from_the_start():
    assert first(coded(leaps=True, told=0.05)) == ("posterior_collapse", 0)


@pytest.mark.parametrize("since", [0, AT])
def test_decay_is_dated_from_the_step_on_which_it_was_raised(since):
    shrinking = lambda s: 0.1 * 0.95 ** max(s - since, 0)  # noqa: E731
    trace = record(
        make_run("fc1", "head"),
        count=STEPS,
        loss=lambda s: falling(s) if s < since else 2.0,
        optimizer=lambda s: {("Adam", Z.WEIGHT_DECAY): 20.0 if s >= since else 0.01},
        parameter=lambda s: {(None, P.WEIGHT_RMS): shrinking(s)},
    )
    assert first(trace) == ("weight_decay_too_high", since)


def signed(loss):
    note = Observation("loss_function", 0, "head", {"terms": 2.0}, {"name": "mse"})
    observed = lambda s: [note] if s == 0 else []  # noqa: E731
    return record(RUN, count=STEPS, loss=loss, observations=observed)


def test_wrong_sign_of_a_term_is_dated_from_the_step_on_which_it_was_switched_on():
    grown = lambda s: -0.1 * 1.2 ** (s - AT)  # noqa: E731
    assert first(signed(lambda s: falling(s) if s < AT else grown(s))) == ("wrong_loss_sign", AT)


def test_wrong_sign_from_the_start_is_dated_there_though_the_loss_crosses_zero_later():
    assert first(signed(lambda s: 3.0 - 0.05 * 1.08**s)) == ("wrong_loss_sign", 0)


@pytest.mark.parametrize(("when", "is_told"), [(AT + 1, True), (AT, False)])
def test_fresh_moments_are_blamed_for_a_leap_after_their_first_update_only(when, is_told):
    """The loss of the step on which they begin comes before it: other data lift that one too."""
    note = Observation("fresh_moments", AT, None, {}, {"optimizer": "Adam"})
    trace = record(
        make_run("fc1", "head"),
        count=STEPS,
        loss=lambda s: falling(s) + (1.2 * 0.9 ** (s - when) if s >= when else 0.0),
        observations=lambda s: [note] if s == AT else [],
    )
    assert ("resume_without_optimizer_state" in causes(trace)) is is_told


def retrained(*, is_one, learns):
    """Batches of another kind from `AT` on; before it one batch, or many of a kind."""

    def inputs(s):
        jitter = 0.0 if is_one and s < AT else 0.02 * math.sin(7.0 * s)
        return {(":0", X.MEAN): jitter + (4.0 if s >= AT else 0.0), (":0", X.RMS): 1.0 + jitter}

    again = lambda s: 4.0 * 0.93 ** (s - AT) + (0.1 if learns else 2.0)  # noqa: E731
    return record(
        make_run("fc1", "head"),
        count=STEPS,
        loss=lambda s: 2 * 0.9**s + 1e-4 if s < AT else again(s),
        inputs=inputs,
    )


def test_data_that_follow_the_rehearsal_on_one_batch_are_no_shift():
    assert causes(retrained(is_one=True, learns=True)) == []
    for is_one, learns in ((True, False), (False, True), (False, False)):
        found = first(retrained(is_one=is_one, learns=learns))
        assert found == ("input_distribution_shift", AT)


@pytest.mark.parametrize("blows_up", [True, False])
def test_values_that_chase_themselves_from_one_step_on(blows_up):
    grown = lambda s: 1.06 ** max(s - AT, 0) if blows_up else 1.0  # noqa: E731
    trace = record(
        make_run("fc1", "head"),
        count=STEPS,
        loss=lambda s: (0.1 + falling(s)) * grown(s) ** 2,
        activation=lambda s: {("head", A.RMS): grown(s)},
        ledger=lambda s: LedgerFacts(**LOOP, eval_forwards=int(s >= AT)),
    )
    assert (first(trace) == ("value_divergence", AT)) if blows_up else (reason(trace) == [])


def test_gradient_that_grew_with_the_loss_in_a_row_of_many_steps_outran_no_second_moment():
    """Old rows stand for many steps: the first of them lies before the jump that they hold."""
    jump, many = 701, 1800
    trace = record(
        make_run("fc1", "head"),
        count=many,
        loss=lambda s: (
            1.5 * 0.9**s
            + 1e-3 * (1 + (s - 688) * 7 % 11)
            + (7.0 * 0.9 ** (s - jump) if s >= jump else 0)
        ),
        parameter=lambda s: {(None, P.GRAD_NORM): 3.0 * 0.9 ** (s - jump) if s >= jump else 0.01},
    )
    assert "stale_second_moment" not in causes(trace)
