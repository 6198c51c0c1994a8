# SPDX-License-Identifier: MIT
"""What end-to-end programs taught, as small runs of facts: each was once told wrongly."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from traces import facts_of, trace_of

from neuraldbg.reasoning import couplings, reason
from neuraldbg.reasoning.cause import argument
from neuraldbg.reasoning.curve import Curve
from neuraldbg.reasoning.view import CaseView
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    LedgerFacts,
    Observation,
    OptimizerStat,
    ParameterStat,
)
from neuraldbg.schema.run import INPUT, LayerInfo, LayerRole
from neuraldbg.schema.vocabulary import EventType, Severity
from neuraldbg.testing import make_run, recorded_run

A, P, X, Z = ActivationStat, ParameterStat, InputStat, OptimizerStat
RUN = make_run("fc1", "fc2", "head")
LARGE = {(None, P.UPDATE_RMS): 0.01}
"""Steps of several percent of the weights, as Adam makes them at a healthy 1e-2."""


def record(run=RUN, count=200, *, loss, events=(), noise=0.02, **changes):
    """Return the trace of a run of the given facts, as capture alone leaves it."""
    return trace_of(facts_of(run, loss=loss, count=count, noise=noise, **changes), events=events)


def falling(step):
    return 2 * 0.97**step + 0.05


def first(trace):
    found = reason(trace)
    assert found, "nothing was found"
    return found[0].cause, str(found[0].failure_type), found[0].layer, found[0].onset


def causes(trace):
    return [h.cause for h in reason(trace)]


# -- learning rate ---------------------------------------------------------------------------


def rate(of):
    return lambda s: {("Adam", Z.LR): of(s), ("Adam", Z.LR_MIN): of(s)}


@pytest.mark.parametrize("count", [3, 12, 25])
def test_noisy_losses_of_a_short_run_are_no_instability(count):
    rng = np.random.default_rng(1)
    losses = np.exp(rng.normal(0, 0.5, count))
    trace = record(count=count, loss=lambda s: losses[s], parameter=LARGE)
    assert causes(trace) == []


def test_noise_around_chance_is_no_instability():
    rng = np.random.default_rng(1)
    losses = np.exp(rng.normal(0, 0.6, 200))
    assert "lr_too_high" not in causes(record(loss=lambda s: losses[s], parameter=LARGE))


def test_run_that_breaks_at_once_needs_no_many_steps():
    trace = record(count=8, loss=lambda s: 10.0**s if s < 5 else math.nan, parameter=LARGE)
    assert "lr_too_high" in causes(trace)


def test_nan_out_of_an_ordinary_loss_is_not_the_rate():
    trace = record(loss=lambda s: math.nan if s >= 60 else 1.0, parameter=LARGE)
    assert "lr_too_high" not in causes(trace)


def test_rise_of_the_rate_right_before_the_symptom_is_the_cause():
    trace = record(
        loss=lambda s: falling(s) if s <= 100 else 50.0,
        optimizer=rate(lambda s: 0.1 if s < 100 else 50.0),
    )
    assert first(trace) == ("lr_too_high", "optimizer_instability", None, 100)


def test_rate_raised_for_one_step_is_told_although_the_run_recovers():
    trace = record(
        loss=lambda s: falling(s) + (8.0 * 0.7 ** (s - 91) if s >= 91 else 0.0),
        optimizer=rate(lambda s: 0.6 if s == 90 else 3e-3),
    )
    assert first(trace) == ("lr_too_high", "optimizer_instability", None, 90)


def test_warmup_and_restarts_are_no_leaps():
    warm = rate(lambda s: 1e-3 * min(1.0, (s + 1) / 20))
    assert reason(record(loss=falling, optimizer=warm)) == []
    restarts = rate(lambda s: 1e-3 * (0.01 if s % 50 > 40 else 1.0))
    assert reason(record(loss=falling, optimizer=restarts)) == []


def test_weights_replaced_between_steps_are_not_the_rate():
    def weights(s):
        return {(None, P.WEIGHT_RMS): 0.1 if s < 60 else 20.0, **LARGE}

    dead = {("fc2", A.SILENT_SHARE): 1.0, ("fc2", A.ZERO_SHARE): 1.0, ("fc2", A.MAX): 0.0}
    trace = record(
        loss=lambda s: falling(s) if s < 60 else 3.0,
        parameter=weights,
        activation=lambda s: dead if s >= 60 else {},
    )
    assert "lr_too_high" not in causes(trace)
    assert first(trace) == ("dying_relu", "dead_neurons", "fc2", 60)


def test_rate_of_zero_on_every_step_is_named():
    trace = record(
        loss=lambda _s: 1.1,
        optimizer=rate(lambda _s: 0.0),
        parameter={(None, P.UPDATE_RMS): 0.0},
    )
    assert first(trace) == ("lr_too_low", "optimizer_instability", None, 0)
    assert "exactly 0" in str(reason(trace)[0])


def test_rate_used_up_before_the_loss_could_fall():
    trace = record(
        loss=lambda _s: 1.4,
        optimizer=rate(lambda s: 3e-3 * 0.1 ** (s // 5)),
        parameter=lambda s: {(None, P.UPDATE_RMS): 1e-4 * 0.1 ** (s // 5)},
    )
    assert first(trace)[:2] == ("scheduler_misstepped", "optimizer_instability")
    assert first(trace)[3] == 5


# -- gradients and activations ---------------------------------------------------------------


def test_recurrence_that_expands_is_not_the_rate():
    rnn = LayerInfo(path="rnn", kind="RNN", role=LayerRole.RECURRENT, order=0, parents=(INPUT,))
    head = LayerInfo(
        path="head", kind="Linear", role=LayerRole.LINEAR, order=1, parents=("rnn",), is_output=True
    )
    run = make_run(rnn, head)
    parameters = tuple(
        p.model_copy(update={"name": "rnn.weight_hh_l0", "initial_rms": 1.0})
        if p.layer == "rnn"
        else p
        for p in run.parameters
    )
    trace = record(
        run.model_copy(update={"parameters": parameters}),
        count=40,
        loss=lambda s: 1e3 * 2.0 ** min(s, 60),
        parameter={("rnn.weight_hh_l0", P.GRAD_NORM): 1e6, (None, P.UPDATE_RMS): 0.2},
    )
    assert first(trace) == ("init_too_large", "exploding_gradients", "rnn", 0)


def linear_and_sigmoid(count):
    layers, before = [], INPUT
    for i in range(count):
        for path, kind, role in (
            (f"{2 * i}", "Linear", LayerRole.LINEAR),
            (f"{2 * i + 1}", "Sigmoid", LayerRole.ACTIVATION),
        ):
            layers.append(
                LayerInfo(
                    path=path,
                    kind=kind,
                    role=role,
                    activation="sigmoid",
                    parents=(before,),
                    order=len(layers),
                )
            )
            before = path
    head = LayerInfo(
        path="head",
        kind="Linear",
        role=LayerRole.LINEAR,
        parents=(before,),
        order=len(layers),
        is_output=True,
    )
    return make_run(*layers, head)


def test_activation_module_and_the_layer_before_it_count_once():
    norms = {(f"{2 * i}.weight", P.GRAD_NORM): 0.1 * 0.2 ** (9 - i) for i in range(9)}
    trace = record(linear_and_sigmoid(9), loss=lambda _s: 1.4, parameter=norms)
    assert ": 9 sigmoid layers in series" in str(reason(trace)[0])


def test_layer_that_dies_between_two_looks_has_its_own_step():
    def dead(s):
        looked = s % 4 == 0
        share = (1.0 if s >= 41 else 0.5) if looked else math.nan
        silent = (1.0 if s >= 48 else 0.2) if looked else math.nan
        return {
            ("fc2", A.ZERO_SHARE): share,
            ("fc2", A.SILENT_SHARE): silent,
            ("fc2", A.MAX): 0.0 if s >= 41 else 1.0,
        }

    relu = RUN.layers[1].model_copy(update={"role": LayerRole.ACTIVATION, "activation": "relu"})
    run = RUN.model_copy(update={"layers": (RUN.layers[0], relu, RUN.layers[2])})
    trace = record(run, loss=lambda s: falling(s) if s < 41 else 3.0, activation=dead)
    assert first(trace) == ("dying_relu", "dead_neurons", "fc2", 41)


@pytest.mark.parametrize(
    ("name", "failure", "layer"),
    [
        ("vanishing_gradient", "vanishing_gradients", "fc1"),
        ("dead_layer", "dead_neurons", "fc2"),
    ],
)
def test_named_runs_are_explained(name, failure, layer):
    found = reason(recorded_run(name))[0]
    assert (str(found.failure_type), found.layer) == (failure, layer)
    assert 98 <= found.onset <= 106


# -- data ------------------------------------------------------------------------------------


def test_one_batch_answered_worse_than_by_ignorance():
    trace = record(loss=lambda s: 10.0 if s == 120 else 2.3 * 0.9 ** min(s, 80))
    assert first(trace) == ("target_outlier", "data_anomaly", None, 120)


def test_one_jump_of_a_loss_that_jumps_all_along_is_how_the_data_are():
    """Heavy tails: jumps of eight times the level every 11 steps, and one of them larger."""

    def loss(s):
        level = 2.3 * 0.9 ** min(s, 30)
        return 10.0 if s == 120 else level * (8.0 if s % 11 == 5 and s > 40 else 1.0)

    assert "target_outlier" not in causes(record(loss=loss))


def test_first_hard_batches_are_no_outliers():
    rng = np.random.default_rng(3)
    losses = rng.normal(size=200) ** 2
    losses[4] = 20.0
    assert "target_outlier" not in causes(record(loss=lambda s: losses[s]))


def drifting(s):
    return {(":0", X.MEAN): 0.05 * max(0, s - 80)}


def test_drift_that_costs_the_run_is_told_and_one_that_does_not_is_none():
    rising = lambda s: 0.1 + 2 * 0.9**s + 0.01 * max(0, s - 85)  # noqa: E731
    trace = record(count=220, loss=rising, inputs=drifting)
    assert first(trace)[:3] == ("input_distribution_shift", "data_anomaly", None)
    assert 80 <= first(trace)[3] <= 100
    assert reason(record(count=220, loss=falling, inputs=drifting)) == []


def test_nan_target_is_a_fault_of_the_data():
    note = Observation(
        "nonfinite_birth",
        50,
        None,
        {"confidence": 0.8},
        {
            "cause": "degenerate_targets",
            "operation": "mse_loss",
            "phase": "loss",
            "mechanism": "nonfinite_target",
            "argument": "the target of mse_loss holds 1 nan of 32 values",
        },
    )
    trace = record(
        loss=lambda s: math.nan if s >= 50 else falling(s),
        parameter=LARGE,
        observations=lambda s: [note] if s == 50 else [],
    )
    assert first(trace) == ("degenerate_targets", "data_anomaly", None, 50)
    assert str(reason(trace)[0]).endswith(
        "born in the loss, in operation mse_loss: the target of mse_loss holds 1 nan of 32 values."
    )
    assert causes(trace) == ["degenerate_targets"]


def test_nan_in_a_batch_is_counted_and_stands_alone():
    note = Observation(
        "nonfinite_input", 60, None, {"count": 2.0, "size": 256.0}, {"name": ":0", "value": "nan"}
    )
    trace = record(
        loss=lambda s: math.nan if s >= 60 else falling(s),
        inputs=lambda s: {(":0", X.NAN): float(s == 60)},
        observations=lambda s: [note] if s == 60 else [],
    )
    assert causes(trace) == ["nan_in_input"]
    assert "the first argument of the model holds 2 NaN of 256 values" in str(reason(trace)[0])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (":0", "the first argument of the model"),
        (":mask", "argument 'mask' of the model"),
        ("G:1", "the second argument of model 'G'"),
        (":0.image", "'image' in the first argument of the model"),
        (":11", "argument 12 of the model"),
    ],
)
def test_inputs_have_names_that_people_read(name, says):
    assert argument(name) == says


# -- wiring ----------------------------------------------------------------------------------


def test_loop_that_steps_by_hand_moves_its_weights():
    unmeasured = {(None, P.WEIGHT_RMS): math.nan, (None, P.UPDATE_RMS): math.nan}
    ledger = LedgerFacts(forwards=1, backwards=1, steps=0, batch_size=16)
    moves = record(loss=lambda s: 1.4 - 0.001 * s, noise=0.0, parameter=unmeasured, ledger=ledger)
    assert "missing_optimizer_step" not in causes(moves)
    stands = record(loss=lambda _s: 1.4, noise=0.0, parameter=unmeasured, ledger=ledger)
    assert "missing_optimizer_step" in causes(stands)


def frozen(loss, count=120, layer="fc1", owned=(), **changes):
    note = Observation("frozen_parameters", 0, layer, {}, {"cause": "frozen_parameters"})
    optimizers = tuple(o.model_copy(update={"parameters": owned}) for o in RUN.optimizers)
    run = RUN.model_copy(update={"optimizers": optimizers}) if owned else RUN
    return record(run, count, loss=loss, observations=lambda s: [note] if s == 0 else [], **changes)


def test_frozen_backbone_under_a_head_that_learns_is_meant():
    head = ("fc2.weight", "head.weight")
    assert reason(frozen(lambda s: 1.4 - 0.002 * s, owned=head)) == []
    assert "frozen_parameters" in causes(frozen(lambda _s: 1.4, owned=head))


def test_frozen_part_that_is_thawed_or_of_a_short_run_is_meant():
    def thawed(s):
        state = GradState.NONE if s < 40 else GradState.PRESENT
        norm = math.nan if s < 40 else 0.1
        return {("fc1.weight", P.GRAD_STATE): float(state), ("fc1.weight", P.GRAD_NORM): norm}

    assert "frozen_parameters" not in causes(frozen(lambda _s: 1.4, parameter=thawed))
    assert "frozen_parameters" not in causes(frozen(lambda _s: 1.4, count=25))


# -- couplings, speed ------------------------------------------------------------------------


def event(layer, kind, state, step=60):
    return SemanticEvent(
        event_type=kind,
        layer=layer,
        step=step,
        step_range=(step - 1, step),
        from_state="healthy",
        to_state=state,
        severity=Severity.CRITICAL,
        confidence=0.9,
    )


def test_couplings_follow_the_signal():
    layers = ("fc1", "fc2", "head")
    gradients = [event(x, EventType.GRADIENT_HEALTH_TRANSITION, "nonfinite") for x in layers]
    outputs = [event(x, EventType.ACTIVATION_REGIME_SHIFT, "anomalous") for x in layers]
    trace = record(
        loss=lambda s: math.nan if s >= 60 else falling(s), events=[*gradients, *outputs]
    )
    found = {
        (str(c.consequence.event_type), c.trigger.layer, c.consequence.layer)
        for c in couplings(trace)
        if c.trigger.event_type == c.consequence.event_type
    }
    assert found == {
        ("gradient_health_transition", "head", "fc2"),
        ("gradient_health_transition", "fc2", "fc1"),
        ("activation_regime_shift", "fc1", "fc2"),
        ("activation_regime_shift", "fc2", "head"),
    }


def test_jumps_of_a_long_noisy_loss_are_found_in_no_time():
    rng = np.random.default_rng(0)
    values = np.exp(0.5 * rng.normal(size=100_000))
    values[5_000] = 1e4
    began = time.perf_counter()
    jumps = Curve(np.arange(len(values)), values).jumps
    assert 5_000 in {index for index, _, _ in jumps}
    assert time.perf_counter() - began < 2


def test_decimated_codes_of_gradients_are_not_averaged_into_other_codes():
    """A critic that steps on some steps and has no gradient on others: no mean of codes is NaN."""

    def states(step):
        code = GradState.NOT_STEPPED if step % 3 else GradState.NONE
        return {(None, P.GRAD_STATE): float(code)}

    trace = record(count=2_600, loss=falling, parameter=states)
    view = CaseView(trace)
    assert not trace.facts.is_exact.all()
    assert set(np.unique(view.parameter(P.GRAD_STATE))) <= {GradState.NONE, GradState.NOT_STEPPED}
    assert not np.isinf(view.gradient_total).any()
    assert view.broken_row is None
