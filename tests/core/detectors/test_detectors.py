# SPDX-License-Identifier: MIT
"""Built-in detectors on facts made by hand: what they report, and that they stay few and quick."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from neuraldbg.detectors import neuraldbg_detectors
from neuraldbg.detectors.activation_shift import ActivationShift
from neuraldbg.detectors.collapse import Collapse
from neuraldbg.detectors.dead_units import DeadUnits
from neuraldbg.detectors.exploding_gradient import ExplodingGradient
from neuraldbg.detectors.input_anomaly import InputAnomaly
from neuraldbg.detectors.loss_curve import LossCurve, oscillation
from neuraldbg.detectors.numerical_error import NumericalError
from neuraldbg.detectors.objective_mismatch import ObjectiveMismatch
from neuraldbg.detectors.saturation import Saturation
from neuraldbg.detectors.vanishing_gradient import VanishingGradient
from neuraldbg.detectors.wiring_fault import WiringFault
from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    LedgerFacts,
    Observation,
    ParameterStat,
)
from neuraldbg.schema.run import LayerInfo, LayerRole
from neuraldbg.schema.vocabulary import Severity
from neuraldbg.settings import Settings
from neuraldbg.testing import check_detector, feed, make_facts, make_run

RUN = make_run("fc1", "fc2", "head")


def steps(count, **changes):
    """Facts of `count` steps; a change is a constant or a function of the step."""
    for step in range(count):
        now = {key: value(step) if callable(value) else value for key, value in changes.items()}
        yield make_facts(now.pop("run", RUN), step, **now)


def told(detector, facts, **kwargs):
    return [(e.layer, e.step, e.to_state) for e in feed(detector, facts, **kwargs)]


@pytest.mark.parametrize("detector", neuraldbg_detectors(), ids=lambda d: d.name)
def test_built_in_keeps_the_contract(detector):
    check_detector(detector)


@pytest.mark.parametrize("detector", neuraldbg_detectors(), ids=lambda d: d.name)
def test_healthy_steps_give_no_warning(detector):
    rng = np.random.default_rng(0)
    events = feed(detector, steps(300, loss=lambda s: 2 * 0.99**s + 0.05 * rng.random()))
    assert [e for e in events if e.severity is not Severity.INFO] == []


def test_all_detectors_together_take_less_than_a_millisecond_for_20_layers():
    run = make_run(*(f"layer{i}" for i in range(20)))
    detectors = [cls(run, Settings()) for cls in neuraldbg_detectors()]
    facts = [make_facts(run, step) for step in range(200)]
    best = math.inf
    for one in facts:
        start = time.perf_counter()
        for detector in detectors:
            list(detector.on_step(one))
        best = min(best, time.perf_counter() - start)
    assert best < 1e-3  # 0.1 ms on an idle core; the test machine is not idle


# -- gradients ---------------------------------------------------------------------------------


def test_vanishing_gradient_names_the_first_of_three_small_steps():
    small = lambda s: {("fc1.weight", ParameterStat.GRAD_NORM): 1e-9 if s >= 5 else 0.1}  # noqa: E731 - a change, in one line
    assert told(VanishingGradient, steps(20, parameter=small)) == [("fc1", 5, "vanishing")]


def test_vanishing_gradient_is_a_warning_only_beside_healthy_layers():
    alone = {("fc1.weight", ParameterStat.GRAD_NORM): 1e-9}
    all_ = {(None, ParameterStat.GRAD_NORM): 1e-9}
    assert feed(VanishingGradient, steps(9, parameter=alone))[0].severity is Severity.WARNING
    severities = {e.severity for e in feed(VanishingGradient, steps(9, parameter=all_))}
    assert severities == {Severity.INFO}


def test_missing_gradient_is_absent_not_vanishing():
    none = {("fc1.weight", ParameterStat.GRAD_STATE): float(GradState.NONE)}
    assert told(VanishingGradient, steps(9, parameter=none)) == [("fc1", 0, "absent")]


def test_two_small_steps_are_not_persistent():
    blip = lambda s: {("fc1.weight", ParameterStat.GRAD_NORM): 1e-9 if s in {4, 5} else 0.1}  # noqa: E731 - a change, in one line
    assert told(VanishingGradient, steps(20, parameter=blip)) == []


def test_exploding_gradient_is_judged_by_threshold_and_by_its_own_past():
    huge = lambda s: {("fc2.weight", ParameterStat.GRAD_NORM): 5e3 if s == 4 else 0.1}  # noqa: E731 - a change, in one line
    jump = lambda s: {("fc2.weight", ParameterStat.GRAD_NORM): 50.0 if s == 40 else 0.1}  # noqa: E731 - a change, in one line
    assert told(ExplodingGradient, steps(9, parameter=huge)) == [("fc2", 4, "exploding")]
    assert told(ExplodingGradient, steps(60, parameter=jump)) == [("fc2", 40, "exploding")]


def test_nonfinite_gradient_is_critical_unless_the_scaler_skipped_the_step():
    broken = {("fc2.weight", ParameterStat.GRAD_STATE): float(GradState.NONFINITE)}
    plain = feed(ExplodingGradient, steps(2, parameter=broken))[0]
    unknown = {"median_grad_norm", "robust_z"}
    assert not unknown & set(plain.evidence), "there is no past to compare the first step with"
    skipped = feed(ExplodingGradient, steps(2, parameter=broken, ledger=LedgerFacts(skipped=1)))[0]
    assert (plain.to_state, plain.severity) == ("nonfinite", Severity.CRITICAL)
    assert skipped.severity is Severity.INFO


# -- activations -------------------------------------------------------------------------------


def test_dead_units_name_the_layer_and_the_first_step():
    dead = lambda s: {("fc1", ActivationStat.SILENT_SHARE): 1.0 if s >= 7 else 0.1}  # noqa: E731 - a change, in one line
    events = feed(DeadUnits, steps(20, activation=dead))
    assert [(e.layer, e.step, e.to_state, e.severity) for e in events] == [
        ("fc1", 7, "dead", Severity.WARNING)
    ]


def test_steps_without_taps_do_not_interrupt_a_state():
    dead = {("fc1", ActivationStat.SILENT_SHARE): 1.0}
    events = feed(DeadUnits, steps(20, activation=dead, is_sampled=lambda s: s % 4 == 0))
    assert [(e.layer, e.step) for e in events] == [("fc1", 0)]


def bounded(activation):
    layer = LayerInfo(
        path="act", kind="X", role=LayerRole.ACTIVATION, activation=activation, order=0
    )
    return make_run(layer)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "hardsigmoid", "hardtanh", "softsign"])
def test_saturation_knows_bounded_activations(activation):
    run, flat = bounded(activation), {("act", ActivationStat.FLAT_SHARE): 0.9}
    assert told(Saturation, steps(9, run=run, activation=flat)) == [("act", 0, "saturated")]


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "softmax", None])
def test_saturation_does_not_apply_where_a_flat_half_is_the_design(activation):
    run, flat = bounded(activation), {("act", ActivationStat.FLAT_SHARE): 0.9}
    assert told(Saturation, steps(9, run=run, activation=flat)) == []


def test_activation_found_on_the_first_step_is_known_from_then_on():
    flat = {("act", ActivationStat.FLAT_SHARE): 0.9}
    events = feed(Saturation, steps(9, run=bounded("tanh"), activation=flat), run=bounded(None))
    assert [e.to_state for e in events] == ["saturated"]


def test_activation_shift_is_relative_to_the_layers_own_past():
    jump = lambda s: {("fc2", ActivationStat.RMS): 40.0 if s == 30 else 1.0}  # noqa: E731 - a change, in one line
    assert told(ActivationShift, steps(40, activation=jump)) == [("fc2", 30, "anomalous")]
    assert told(ActivationShift, steps(40, activation={(None, ActivationStat.RMS): 40.0})) == []


def test_collapse_is_a_loss_of_spread_that_was_there():
    fall = lambda s: {("head", ActivationStat.SPREAD): 0.005 if s >= 10 else 0.8}  # noqa: E731 - a change, in one line
    assert told(Collapse, steps(30, activation=fall)) == [("head", 10, "collapsed")]
    assert told(Collapse, steps(30, activation={("head", ActivationStat.SPREAD): 0.005})) == []


# -- loss --------------------------------------------------------------------------------------


def curve(values):
    return steps(len(values), loss=lambda s: float(values[s]))


def noisy(count, level=1.0, seed=0):
    return level + 0.03 * np.random.default_rng(seed).normal(size=count)


def test_loss_spike_is_found_on_its_step():
    losses = noisy(100)
    losses[60] = 9.0
    assert (None, 60, "loss_spike") in told(LossCurve, curve(losses))


def test_slow_divergence_is_found_under_noise():
    losses = noisy(300)
    losses[150:] *= np.linspace(1, 3, 150)
    diverging = [t for t in told(LossCurve, curve(losses)) if t[2] == "diverging"]
    assert len(diverging) == 1
    assert 150 <= diverging[0][1] <= 200


def test_nonfinite_loss_diverges_on_its_own_step():
    losses = noisy(20)
    losses[11:] = np.nan
    assert (None, 11, "diverging") in told(LossCurve, curve(losses))


def test_plateau_is_found_and_a_falling_loss_is_none():
    falling = 3 * 0.995 ** np.arange(400) + noisy(400, 0.0)
    assert "loss_plateau" in {t[2] for t in told(LossCurve, curve(noisy(400)))}
    assert "loss_plateau" not in {t[2] for t in told(LossCurve, curve(falling))}


def test_oscillation_counts_changes_of_direction():
    assert oscillation(np.array([0.0, 1.0, 0.0, 1.0, 0.0])) == 1.0
    assert oscillation(np.arange(5.0)) == 0.0
    assert oscillation(np.random.default_rng(0).normal(size=5000)) == pytest.approx(2 / 3, abs=0.02)


def test_events_stay_few_over_many_spikes():
    losses = noisy(3000)
    losses[50::20] = 9.0
    assert len(feed(LossCurve, curve(losses))) < 12


# -- inputs ------------------------------------------------------------------------------------


def batches(count, change, seed=1):
    rng = np.random.default_rng(seed)

    def cells(step):
        mean, rms = 0.02 * rng.normal(), 1 + 0.02 * rng.normal()
        mean, rms = change(step, mean, rms)
        return {(":0", InputStat.MEAN): mean, (":0", InputStat.RMS): rms}

    return steps(count, inputs=cells)


def states(events):
    return {e.to_state: e.step for e in events}


def test_one_bad_batch_is_an_outlier():
    events = feed(InputAnomaly, batches(60, lambda s, m, r: (m, 30.0 if s == 40 else r)))
    assert states(events) == {"outlier": 40}


def test_a_lasting_change_is_a_shift_from_its_first_batch():
    events = feed(InputAnomaly, batches(80, lambda s, m, r: (m + 3.0 * (s >= 40), r)))
    assert states(events)["distribution_shift"] == 40


def test_a_slow_drift_is_a_shift():
    drift = lambda s, m, r: (m + 0.002 * max(0, s - 100), r)  # noqa: E731 - a change, in one line
    assert "distribution_shift" in states(feed(InputAnomaly, batches(300, drift)))


def test_ordinary_batches_are_normal():
    assert feed(InputAnomaly, batches(500, lambda s, m, r: (m, r))) == []


@pytest.mark.parametrize(
    ("stat", "state"), [(InputStat.NAN, "nan_detected"), (InputStat.INF, "inf_detected")]
)
def test_nan_and_inf_are_found_on_their_own_step(stat, state):
    events = feed(InputAnomaly, steps(9, inputs=lambda s: {(":0", stat): float(s == 6)}))
    assert states(events) == {state: 6}


# -- observations ------------------------------------------------------------------------------


def test_birth_of_a_nan_becomes_an_event_with_its_operation():
    note = Observation("nonfinite_birth", 3, "fc2", {"count": 2.0}, {"operation": "log"})
    (event,) = feed(NumericalError, steps(5, observations=lambda s: [note] if s == 3 else []))
    assert (event.layer, event.step, event.evidence["operation"]) == ("fc2", 3, "log")


def test_without_a_birth_the_first_layer_in_execution_order_is_named():
    broken = {("fc2", ActivationStat.NONFINITE): 1.0, ("head", ActivationStat.NONFINITE): 1.0}
    assert told(NumericalError, steps(3, activation=broken))[0][:2] == ("fc2", 0)


@pytest.mark.parametrize(
    ("detector", "kind"),
    [(WiringFault, "parameter_not_in_optimizer"), (ObjectiveMismatch, "broadcast_loss")],
)
def test_observations_become_events_a_bounded_number_of_times(detector, kind):
    notes = lambda s: [Observation(kind, s, "fc1", {"confidence": 0.8})]  # noqa: E731 - a change, in one line
    events = feed(detector, steps(100, observations=notes))
    assert sum(event.count for event in events) == 16
    assert events[0].confidence == 0.8
