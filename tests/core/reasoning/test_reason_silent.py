# SPDX-License-Identifier: MIT
"""Faults that a falling loss, thinned steps or a second model could hide."""

from __future__ import annotations

import math

import pytest
from traces import causes, falling, flat, linear, record

from neuraldbg.reasoning import reason
from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    LedgerFacts,
    Observation,
    ParameterStat,
)
from neuraldbg.schema.run import INPUT, InputInfo, OptimizerInfo
from neuraldbg.testing import make_run


def once(*notes):
    return lambda step: list(notes) if step == 0 else []


def two_layers():
    return make_run(linear("body", 0, INPUT), linear("head", 1, "body", is_output=True))


def test_layer_without_gradient_is_named_though_steps_are_thinned_and_the_loss_falls():
    def thinned(value):
        return lambda step: math.nan if step % 3 else float(value)

    state, ran = thinned(GradState.NONE), thinned(1)
    trace = record(
        two_layers(),
        loss=falling,
        observations=once(Observation("gradient_absent", 0, "body")),
        parameter=lambda step: {("body.weight", ParameterStat.GRAD_STATE): state(step)},
        activation=lambda step: {("body", ActivationStat.CALLS): ran(step)},
    )
    found = reason(trace)[0]
    assert (found.cause, found.layer) == ("detached_graph", "body")


@pytest.mark.parametrize(("shape", "is_told"), [(3**0.5, True), (3.1, False)])
def test_frozen_layers_that_hold_what_they_were_drawn_with_are_told_from_trained_ones(
    shape, is_told
):
    run = two_layers()
    parameters = tuple(
        p.model_copy(update={"is_trainable": p.layer != "body", "shape": (64, 16)})
        for p in run.parameters
    )
    held = OptimizerInfo(kind="SGD", groups=1, parameters=tuple(p.name for p in parameters))
    run = run.model_copy(update={"parameters": parameters, "optimizers": (held,)})
    trace = record(
        run,
        loss=lambda s: 0.6 + 0.8 * 0.95**s,
        observations=once(Observation("frozen_parameters", 0, "body")),
        parameter={
            ("body.weight", ParameterStat.WEIGHT_RMS): 0.1,
            ("body.weight", ParameterStat.WEIGHT_MAX): 0.1 * shape,
        },
    )
    assert causes(trace)[:1] == (["frozen_parameters"] if is_told else [])


def test_nan_that_the_run_made_itself_is_not_blamed_on_the_input_it_comes_back_with():
    run = two_layers().model_copy(
        update={"inputs": (InputInfo(name=":0", model="", dtype="float32", shape=(8, 4)),)}
    )

    def broken(step):
        return {(":0", InputStat.NAN): float(step >= 64)}

    born = Observation(
        "nonfinite_birth",
        60,
        None,
        {"confidence": 0.95},
        {"operation": "log", "phase": "loss", "cause": "log_of_nonpositive"},
    )
    lost = lambda s: math.nan if s >= 60 else flat(s)  # noqa: E731
    notes = lambda s: [born] if s == 60 else []  # noqa: E731
    assert causes(record(run, loss=lost, inputs=broken, observations=notes))[0] == (
        "log_of_nonpositive"
    )
    assert causes(record(run, loss=lost, inputs=broken))[0] == "nan_in_input"


@pytest.mark.parametrize("is_moved", [False, True])
def test_loop_without_an_optimizer_is_judged_by_its_weights_not_by_its_noisy_loss(is_moved):
    notes = [Observation("no_optimizer_step", 0, None, {"steps": 3.0, "unmoved": 1.0})]
    notes += [Observation("weights_moved", 0)] if is_moved else []
    trace = record(
        two_layers(),
        loss=lambda s: 3.0 if s < 3 else 1.0,
        noise=0.5,
        ledger=LedgerFacts(forwards=1, backwards=1),
        parameter={(None, ParameterStat.WEIGHT_RMS): math.nan},
        observations=once(*notes),
    )
    assert ("missing_optimizer_step" in causes(trace)) == (not is_moved)


def test_gradients_of_zero_from_the_first_step_on_are_a_cut_path_and_later_ones_are_not():
    def zero_from(first):
        return lambda step: {
            ("body.weight", ParameterStat.GRAD_STATE): float(
                GradState.ZERO if step >= first else GradState.PRESENT
            )
        }

    found = reason(record(two_layers(), loss=flat, parameter=zero_from(0)))[0]
    assert (found.cause, found.layer, found.onset) == ("detached_graph", "body", 0)
    assert "detached_graph" not in causes(record(two_layers(), loss=flat, parameter=zero_from(1)))


def test_evaluation_that_is_thrown_about_far_above_where_it_was_shows_forgetting():
    lost = [0.9, 2.1, 26.0, 9.0, 38.0, 12.0, 50.0, 28.0]

    def metrics(of):
        return lambda step: {"old_loss": of[step // 16]} if step % 16 == 0 else {}

    told = once(Observation("pretrained", 0, None, {"layers": 2.0, "trained": 2.0}))
    bad = record(two_layers(), loss=falling, metrics=metrics(lost), observations=told)
    assert causes(bad)[:1] == ["catastrophic_forgetting"]
    small = [value / 1000 for value in lost]
    good = record(two_layers(), loss=falling, metrics=metrics(small), observations=told)
    assert causes(good) == []
