# SPDX-License-Identifier: MIT
"""From facts made by hand to the first hypothesis: cause, type, layer and step."""

from __future__ import annotations

import math

import pytest
from traces import facts_of, watched

from neuraldbg.reasoning import couplings, reason
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
from neuraldbg.testing import RUNS, make_run, recorded_run

A, P, X, Z = ActivationStat, ParameterStat, InputStat, OptimizerStat
RUN = make_run("fc1", "fc2", "head")
STEPS = 200


def record(run=RUN, count=STEPS, *, loss, **changes):
    """Return the trace of a run of the given facts, seen by all built-in detectors."""
    return watched(facts_of(run, loss=loss, count=count, **changes))


def first(trace):
    found = reason(trace)
    assert found, "nothing was found"
    best = found[0]
    return best.cause, str(best.failure_type), best.layer, best.onset


def flat(_step):
    return 1.4


def falling(step):
    return 2 * 0.97**step + 0.05


def loss_function(name, **figures):
    note = Observation(
        "loss_function",
        0,
        "head",
        {"terms": 1.0, "factor": 1.0, **figures},
        {"name": name, "reduction": "mean"},
    )
    return lambda step: [note] if step == 0 else []


@pytest.mark.parametrize("name", ["healthy"])
def test_a_run_that_learns_has_no_hypothesis(name):
    assert reason(recorded_run(name)) == []
    assert couplings(recorded_run(name)) == []


@pytest.mark.parametrize("name", sorted(RUNS))
def test_the_same_trace_gives_the_same_answer(name):
    assert reason(recorded_run(name)) == reason(recorded_run(name))


def test_nan_in_input_explains_what_follows():
    assert first(recorded_run("nan_input")) == ("nan_in_input", "data_anomaly", None, 100)


def test_mask_of_minus_infinity_is_no_fault():
    trace = record(loss=falling, inputs={(":0", X.INF): 1.0})
    assert reason(trace) == []


def test_birth_names_operation_and_layer():
    note = Observation(
        "nonfinite_birth",
        20,
        "fc2",
        {"confidence": 0.95},
        {"cause": "log_of_nonpositive", "operation": "log", "phase": "forward"},
    )
    trace = record(
        loss=lambda s: math.nan if s >= 20 else falling(s),
        observations=lambda s: [note] if s == 20 else [],
    )
    assert first(trace) == ("log_of_nonpositive", "numerical_error", "fc2", 20)
    assert "log" in str(reason(trace)[0])


def test_birth_at_the_end_of_a_divergence_is_not_its_cause():
    note = Observation(
        "nonfinite_birth",
        40,
        "fc2",
        {"confidence": 0.5},
        {"operation": "addmm", "phase": "forward"},
    )
    trace = record(
        loss=lambda s: math.nan if s >= 40 else 1.5**s,
        parameter=lambda s: {(None, P.UPDATE_RMS): 0.02 * 1.2 ** min(s, 14)},
        observations=lambda s: [note] if s == 40 else [],
    )
    assert first(trace)[0] == "lr_too_high"


def test_lr_too_high_needs_large_steps():
    large = {(None, P.UPDATE_RMS): 0.02}
    diverging = lambda s: min(1.2**s, 1e6)  # noqa: E731
    assert first(record(loss=diverging, parameter=large)) == (
        "lr_too_high",
        "optimizer_instability",
        None,
        0,
    )
    assert first(record(loss=diverging))[0] == "unknown"
    assert reason(record(loss=falling, parameter=large)) == []


def test_lr_too_low_adds_up_how_far_weights_went():
    tiny = {(None, P.UPDATE_RMS): 1e-7}
    assert first(record(loss=flat, parameter=tiny))[0] == "lr_too_low"
    assert reason(record(loss=falling, parameter=tiny)) == []


def test_schedule_used_up_at_once_is_told_from_one_that_ends_with_the_run():
    def lr(decay):
        return lambda s: {("Adam", Z.LR): decay(s), ("Adam", Z.LR_MIN): decay(s)}

    stair = lr(lambda s: 1e-3 * 0.1 ** (s // 6))
    cosine = lr(lambda s: 5e-4 * (1 + math.cos(math.pi * s / STEPS)))
    starved = lambda s: 1.0 + max(0, 20 - s) * 0.05  # noqa: E731
    assert first(record(loss=starved, optimizer=stair))[0] == "scheduler_misstepped"
    assert reason(record(loss=falling, optimizer=cosine)) == []


def test_weight_decay_too_high_shrinks_weights_at_a_flat_loss():
    decay = {("Adam", Z.WEIGHT_DECAY): 1.0}
    trace = record(
        make_run("fc1", "head"),
        loss=flat,
        optimizer=decay,
        parameter=lambda s: {(None, P.WEIGHT_RMS): 0.1 * 0.97**s},
    )
    assert first(trace)[0] == "weight_decay_too_high"


def test_dead_layer_is_blamed_at_the_frontier():
    dead = {
        (layer, stat): value
        for layer in ("fc1", "fc2")
        for stat, value in ((A.SILENT_SHARE, 1.0), (A.ZERO_SHARE, 1.0), (A.MAX, 0.0))
    }
    trace = record(loss=flat, activation=lambda s: dead if s >= 30 else {})
    assert first(trace) == ("dying_relu", "dead_neurons", "fc1", 30)


def test_large_steps_explain_dead_units():
    dead = {("fc1", A.SILENT_SHARE): 1.0, ("fc1", A.MAX): 0.0}
    trace = record(
        loss=flat,
        activation=lambda s: dead if s >= 3 else {},
        parameter={(None, P.UPDATE_RMS): 0.02},
    )
    assert [h.cause for h in reason(trace)][:2] == ["lr_too_high", "dying_relu"]


def test_raw_input_is_blamed_on_the_layer_it_enters():
    trace = record(loss=flat, activation={("fc1", A.INPUT_RMS): 120.0})
    assert first(trace) == ("unnormalized_input", "data_anomaly", "fc1", 0)
    assert reason(record(loss=falling, activation={("fc1", A.INPUT_RMS): 120.0})) == []


def test_raw_input_behind_a_normalisation_is_fine():
    norm = LayerInfo(
        path="bn", kind="BatchNorm1d", role=LayerRole.NORMALIZATION, order=0, parents=(INPUT,)
    )
    fc = LayerInfo(
        path="fc", kind="Linear", role=LayerRole.LINEAR, order=1, parents=("bn",), is_output=True
    )
    trace = record(make_run(norm, fc), loss=flat, activation={("bn", A.INPUT_RMS): 120.0})
    assert "unnormalized_input" not in [h.cause for h in reason(trace)]


def sigmoids(count):
    layers = []
    for i in range(count):
        layers.append(
            LayerInfo(
                path=f"l{i}",
                kind="Linear",
                role=LayerRole.LINEAR,
                activation="sigmoid",
                parents=(layers[-1].path if layers else INPUT,),
                order=i,
            )
        )
    return make_run(
        *layers,
        LayerInfo(
            path="out",
            kind="Linear",
            role=LayerRole.LINEAR,
            parents=(layers[-1].path,),
            order=count,
            is_output=True,
        ),
    )


def test_sigmoids_in_depth_are_blamed_on_the_first_layer():
    run = sigmoids(8)
    norms = {(f"l{i}.weight", P.GRAD_NORM): 0.1 * 0.2 ** (8 - i) for i in range(8)}
    trace = record(run, loss=flat, parameter=norms)
    assert first(trace) == ("saturating_activations", "vanishing_gradients", "l0", 0)


def test_small_gradients_of_a_converged_run_are_no_failure():
    trace = record(loss=lambda s: 2 * 0.9**s + 1e-6, parameter={(None, P.GRAD_NORM): 1e-9})
    assert reason(trace) == []


def test_chance_loss_with_sound_gradients_points_to_the_labels():
    trace = record(
        loss=lambda _s: 1.386,
        observations=loss_function("cross_entropy", classes=4.0),
    )
    assert first(trace)[0] == "labels_unrelated_to_inputs"


def shifted(step, start):
    return {(":0", X.MEAN): 0.01 * (step % 3) + (4.0 if step >= start else 0.0)}


def test_lasting_shift_and_lone_batch_are_told_apart():
    worse = lambda s: falling(s) + 1.0 * (s >= 80)  # noqa: E731
    shift = record(loss=worse, inputs=lambda s: shifted(s, 80))
    assert first(shift) == ("input_distribution_shift", "data_anomaly", None, 80)
    lone = record(
        loss=lambda s: 40.0 if s == 80 else worse(s),
        inputs=lambda s: {(":0", X.RMS): 60.0 if s == 80 else 1.0},
    )
    assert first(lone) == ("outlier_batch", "data_anomaly", None, 80)


def test_shift_that_the_loss_does_not_notice_is_no_failure():
    assert reason(record(loss=falling, inputs=lambda s: shifted(s, 80))) == []


def test_loss_jump_at_ordinary_outputs_points_to_the_targets():
    trace = record(loss=lambda s: 1e6 if s == 60 else falling(s) + 1.0 * (s > 60))
    assert first(trace) == ("target_outlier", "data_anomaly", None, 60)


def test_unclipped_gradient_of_a_recurrent_layer():
    rnn = LayerInfo(path="rnn", kind="LSTM", role=LayerRole.RECURRENT, order=0, parents=(INPUT,))
    head = LayerInfo(
        path="head", kind="Linear", role=LayerRole.LINEAR, order=1, parents=("rnn",), is_output=True
    )
    trace = record(
        make_run(rnn, head),
        loss=lambda s: falling(s) if s < 61 else 5.0,
        parameter=lambda s: {(None, P.GRAD_NORM): 500.0 if s == 60 else 0.1},
    )
    assert first(trace) == ("missing_gradient_clipping", "exploding_gradients", "rnn", 60)


def test_values_that_chase_themselves_diverge():
    trace = record(
        loss=lambda s: 0.1 * 1.05**s,
        activation=lambda s: {("head", A.RMS): 1.03**s},
        ledger=LedgerFacts(forwards=1, backwards=1, steps=1, batch_size=32, eval_forwards=1),
    )
    assert first(trace)[0] == "value_divergence"


LOOP = {"forwards": 1, "backwards": 1, "steps": 1, "batch_size": 32}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"is_cleared": False}, "missing_zero_grad"),
        ({"is_cleared_before_step": True}, "zero_grad_before_step"),
        ({"steps": 0}, "missing_optimizer_step"),
        ({"is_clipped_after_step": True}, "clip_after_step"),
        ({"is_clipped_scaled": True, "clips": 1}, "clip_before_unscale"),
        ({"eval_mode_forwards": 1}, "eval_mode_in_training"),
    ],
)
def test_loop_faults_are_read_from_the_ledger(changes, cause):
    found = first(record(loss=flat, ledger=LedgerFacts(**{**LOOP, **changes})))
    assert found[:2] == (cause, "training_wiring")
    assert found[3] in {0, 1}


def test_eval_mode_after_an_evaluation_has_its_step():
    ledger = lambda s: LedgerFacts(**LOOP, eval_mode_forwards=int(s >= 50))  # noqa: E731
    assert first(record(loss=falling, ledger=ledger))[::3] == ("eval_mode_in_training", 50)


def test_observed_fault_beats_readings_of_symptoms():
    note = Observation("broadcast_loss", 0, "head", {"confidence": 0.9})
    trace = record(
        loss=lambda s: 1.3 ** min(s, 60),
        parameter={(None, P.UPDATE_RMS): 0.05},
        observations=lambda s: [note] if s == 0 else [],
    )
    assert first(trace) == ("loss_shape_broadcast", "objective_mismatch", "head", 0)


def test_what_is_often_meant_counts_only_in_a_failing_run():
    note = Observation("frozen_parameters", 0, "fc1", {}, {"cause": "frozen_parameters"})
    notes = lambda s: [note] if s == 0 else []  # noqa: E731
    assert reason(record(loss=falling, observations=notes)) == []
    assert first(record(loss=flat, observations=notes))[0] == "frozen_parameters"


def test_broken_run_without_a_known_cause_is_unknown_with_layer_and_step():
    trace = record(
        loss=lambda s: math.nan if s >= 90 else falling(s),
        parameter=lambda s: {(None, P.GRAD_STATE): float(GradState.NONFINITE)} if s >= 90 else {},
        activation=lambda s: {("fc2", A.NONFINITE): 1.0} if s >= 90 else {},
    )
    assert first(trace) == ("unknown", "numerical_error", "fc2", 90)


def test_hypotheses_carry_evidence_chain_and_remedy():
    (best, *_) = reason(recorded_run("nan_input"))
    assert best.causal_chain
    assert best.remedies
    assert best.onset_range == (100, 100)


def test_couplings_are_linear_and_follow_time():
    trace = record(
        loss=lambda s: math.nan if s >= 50 else falling(s),
        inputs=lambda s: {(":0", X.NAN): float(s == 50)},
        activation=lambda s: {("fc1", A.NONFINITE): 1.0} if s >= 50 else {},
    )
    found = couplings(trace, 5)
    assert found
    assert len(found) <= len(trace.events)
    assert all(c.trigger.step <= c.consequence.step for c in found)
    assert all(c.step_difference <= 5 for c in found)
    assert "data_anomaly" in {str(c.trigger.event_type) for c in found}
