# SPDX-License-Identifier: MIT
"""Without its decisive evidence a cause goes; counter-evidence lowers it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from traces import trace_of

from neuraldbg.reasoning.cause import Assessment
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import Observation, OptimizerStat, ParameterStat
from neuraldbg.schema.vocabulary import EventType, FailureType
from neuraldbg.testing import recorded_run, steps_of
from neuraldbg_engine.calibration import shipped
from neuraldbg_engine.causes import deck
from neuraldbg_engine.explain import Verdict, explain
from neuraldbg_engine.findings import Case, all_findings

ONSET = 100


def confidence(trace, cause):
    return max((h.confidence for h in explain(trace) if h.cause == cause), default=0.0)


def mutated(name, change):
    return trace_of([change(facts) for facts in steps_of(name)])


def clean_input(facts):
    inputs = steps_of("healthy")[facts.step].inputs
    return replace(facts, inputs=np.array(inputs))


def observed(kind, **figures):
    def change(facts):
        if facts.step:
            return facts
        note = Observation(kind, 0, "fc1", figures, {})
        return replace(facts, observations=(note,))

    return change


def test_without_the_nan_in_the_batch_it_is_no_longer_the_cause():
    assert explain(recorded_run("nan_input"))[0].cause == "nan_in_input"
    assert confidence(mutated("nan_input", clean_input), "nan_in_input") == 0.0


def test_without_silent_units_no_relu_has_died():
    assert explain(recorded_run("dead_layer"))[0].cause == "dying_relu"

    def revive(facts):
        healthy = steps_of("healthy")[facts.step]
        return replace(facts, activation=healthy.activation, parameter=healthy.parameter)

    assert explain(mutated("dead_layer", revive)) == []


def test_a_leap_of_the_lr_takes_the_death_of_a_relu_over():
    def leap(facts):
        optimizer, parameter = facts.optimizer.copy(), facts.parameter.copy()
        losses = dict(facts.losses)
        if facts.step >= ONSET - 1:
            optimizer[:, [OptimizerStat.LR, OptimizerStat.LR_MIN]] *= 300
            parameter[:, ParameterStat.UPDATE_RMS] *= 300
        if facts.step >= ONSET:
            losses["loss"] = 20 * losses["loss"]
        return replace(facts, optimizer=optimizer, parameter=parameter, losses=losses)

    before = confidence(recorded_run("dead_layer"), "dying_relu")
    trace = mutated("dead_layer", leap)
    assert explain(trace)[0].cause == "lr_too_high"
    assert confidence(trace, "dying_relu") < before / 2


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("unregistered_module", "unregistered_modules"),
        ("probabilities_into_cross_entropy", "double_softmax"),
        ("identical_rows", "symmetric_init"),
        ("sample_leak", "axis_order_error"),
    ],
)
def test_what_capture_saw_carries_its_cause_and_goes_with_it(kind, cause):
    trace = mutated("healthy", observed(kind, confidence=0.9))
    assert explain(trace)[0].cause == cause
    assert confidence(recorded_run("healthy"), cause) == 0.0


def test_a_doubtful_observation_is_believed_less_than_a_sure_one():
    sure, doubtful = (
        confidence(mutated("healthy", observed("sample_leak", confidence=g)), "axis_order_error")
        for g in (0.95, 0.55)
    )
    assert sure > doubtful


# -- causes that core does not speak up for --------------------------------------------------


class Silenced(Case):
    """A case in which core's specialists keep quiet, or say only what is given."""

    said: tuple[Assessment, ...] = ()

    @property
    def assessments(self):
        return self.said


def verdict(trace, said=()):
    case = Silenced(trace)
    case.said = said
    return Verdict(case, all_findings(case), deck(), shipped())


def test_a_card_alone_names_its_cause_with_layer_step_and_words():
    unknown = Assessment("unknown", FailureType.NUMERICAL_ERROR, 0.3, "Broken.", onset=ONSET)
    (first, *_) = verdict(recorded_run("nan_input"), (unknown,)).hypotheses
    assert first.cause == "nan_in_input"
    assert first.onset == ONSET
    assert "step 100" in first.description
    assert first.remedies == (deck()["nan_in_input"].remedy,)


def test_hints_without_anything_decisive_name_no_cause():
    assert verdict(recorded_run("vanishing_gradient")).hypotheses == []


def test_where_core_keeps_quiet_about_causes_of_its_own_so_does_the_engine():
    assert verdict(recorded_run("nan_input")).hypotheses == []


def test_a_failure_without_a_known_cause_is_said_to_be_unknown():
    first = explain(recorded_run("nan_loss"))[0]
    assert first.cause == "unknown"
    assert first.onset == ONSET


def test_an_event_before_the_onset_that_another_cause_cites_speaks_against():
    event = SemanticEvent(
        event_type=EventType.DATA_ANOMALY,
        step=20,
        step_range=(19, 20),
        from_state="normal",
        to_state="outlier",
        confidence=0.9,
    )
    late = Assessment("lr_too_high", FailureType.OPTIMIZER_INSTABILITY, 0.6, "Late.", onset=190)
    early = Assessment(
        "outlier_batch", FailureType.DATA_ANOMALY, 0.6, "Early.", onset=20, evidence=(event,)
    )
    found = {h.cause: h for h in verdict(recorded_run("healthy"), (late, early)).hypotheses}
    assert found["lr_too_high"].counter_evidence == (event,)
    assert found["outlier_batch"].counter_evidence == ()
