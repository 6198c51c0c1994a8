# SPDX-License-Identifier: MIT
"""Couplings: along the graph, beyond chance, in stable order, linear in events, none in health."""

from __future__ import annotations

import time

import numpy as np
import pytest
from traces import watched_run

from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import ActivationStat, ParameterStat
from neuraldbg.schema.vocabulary import EventType
from neuraldbg.settings import Settings
from neuraldbg.testing import make_facts, make_run
from neuraldbg.trace import TraceWriter
from neuraldbg_engine.coupling import couplings
from neuraldbg_engine.findings import Case

RUN = make_run("fc1", "fc2", "head")
GRADIENT, OUTPUT = EventType.GRADIENT_HEALTH_TRANSITION, EventType.ACTIVATION_REGIME_SHIFT


def event(kind, layer, step, state="anomalous"):
    return SemanticEvent(
        event_type=kind,
        layer=layer,
        step=step,
        step_range=(max(step - 1, 0), step),
        from_state="normal",
        to_state=state,
        confidence=0.9,
    )


def recorded(events, *, run=RUN, count=120, **cells):
    """Return a trace with these events; `cells` are functions of (step, noise)."""
    noise = np.random.default_rng(0)
    writer = TraceWriter(None, run, Settings())
    for step in range(count):
        now = {kind: make(step, noise) for kind, make in cells.items()}
        writer.write_step(make_facts(run, step, **now))
    for one in events:
        writer.write_event(one)
    writer.finish()
    return writer.as_trace()


def pairs(trace, window=5):
    return [
        (c.trigger.layer, c.trigger.step, c.consequence.layer, c.consequence.step)
        for c in couplings(Case(trace), window)
    ]


def outputs(step, noise, jump=60, lag=2):
    """Outputs of fc1 and of head jump by a factor of 10, one `lag` steps after the other."""
    jitter = np.exp(0.05 * noise.normal(size=2))
    return {
        ("fc1", ActivationStat.RMS): jitter[0] * (10 if step >= jump else 1),
        ("head", ActivationStat.RMS): jitter[1] * (10 if step >= jump + lag else 1),
    }


def test_failure_that_leads_to_another_along_the_flow_is_coupled():
    trace = recorded([event(OUTPUT, "fc1", 60), event(OUTPUT, "head", 62)], activation=outputs)
    (found,) = couplings(Case(trace))
    assert (found.trigger.layer, found.consequence.layer) == ("fc1", "head")
    assert found.step_difference == 2
    assert found.confidence > 0.5
    assert "'head'" in found.mechanism


def test_window_limits_the_distance():
    trace = recorded([event(OUTPUT, "fc1", 60), event(OUTPUT, "head", 62)], activation=outputs)
    assert pairs(trace, 1) == []
    assert len(pairs(trace, 2)) == 1


def test_events_against_the_flow_are_not_coupled():
    trace = recorded(
        [event(OUTPUT, "head", 60), event(OUTPUT, "fc1", 60)],
        activation=lambda s, n: outputs(s, n, lag=0),
    )
    assert pairs(trace) == [("fc1", 60, "head", 60)]


def test_events_that_the_figures_do_not_bear_out_are_not_coupled():
    """Both are told within the window, but nothing in either figure moved."""
    still = recorded(
        [event(OUTPUT, "fc1", 60), event(OUTPUT, "head", 62)],
        activation=lambda s, n: outputs(s, n, jump=10_000),
    )
    assert pairs(still) == []


def test_two_restless_figures_are_not_coupled_by_accident():
    """Head leaps every few steps anyway: that it does so after fc1 says nothing."""
    spikes = set(np.random.default_rng(3).choice(120, 30, replace=False).tolist())

    def restless(step, noise):
        return {
            ("fc1", ActivationStat.RMS): 20.0
            if step == 60
            else float(np.exp(0.1 * noise.normal())),
            ("head", ActivationStat.RMS): 20.0 if step in spikes | {62} else 1.0,
        }

    trace = recorded([event(OUTPUT, "fc1", 60), event(OUTPUT, "head", 62)], activation=restless)
    assert pairs(trace) == []


def test_gradient_runs_backward():
    def gradients(step, noise):
        jitter = np.exp(0.05 * noise.normal(size=3))
        late = 100 if step >= 60 else 1
        names = ("fc1.weight", "fc2.weight", "head.weight")
        return {(n, ParameterStat.GRAD_NORM): j * late for n, j in zip(names, jitter, strict=True)}

    events = [event(GRADIENT, layer, 60, "exploding") for layer in ("fc1", "fc2", "head")]
    assert pairs(recorded(events, parameter=gradients)) == [
        ("head", 60, "fc2", 60),
        ("fc2", 60, "fc1", 60),
    ]


def test_weights_act_on_the_next_step_not_on_their_own():
    """What a gradient does to the weights shows in outputs from the next forward on."""

    def grown(step, noise):
        jitter = np.exp(0.05 * noise.normal())
        return {("fc2.weight", ParameterStat.GRAD_NORM): jitter * (100 if step >= 60 else 1)}

    same, later = (
        recorded(
            [event(GRADIENT, "fc2", 60, "exploding"), event(OUTPUT, "fc2", step)],
            parameter=grown,
            activation=lambda s, n, at=step: {
                ("fc2", ActivationStat.RMS): (10 if s >= at else 1)
                * float(np.exp(0.05 * n.normal()))
            },
        )
        for step in (60, 61)
    )
    (at_once,), (next_step,) = couplings(Case(same)), couplings(Case(later))
    assert at_once.trigger.event_type == OUTPUT
    assert next_step.trigger.event_type == GRADIENT
    assert next_step.step_difference == 1


@pytest.mark.parametrize("name", ["nan_input", "nan_loss", "dead_layer"])
def test_couplings_of_a_run_are_the_same_each_time_and_in_order(name):
    one, two = (couplings(Case(watched_run(name))) for _ in range(2))
    assert one == two
    assert [c.consequence.step for c in one] == sorted(c.consequence.step for c in one)
    assert all(0 <= c.step_difference <= 5 for c in one)
    assert all(c.mechanism for c in one)


def test_input_that_breaks_leads_to_all_that_breaks_with_it():
    found = couplings(Case(watched_run("nan_input")))
    assert ("data_anomaly", "optimizer_instability") in {
        (str(c.trigger.event_type), str(c.consequence.event_type)) for c in found
    }


def test_healthy_run_has_none():
    assert couplings(Case(watched_run("healthy"))) == []


def test_each_consequence_has_one_trigger_and_time_is_linear_in_events():
    run = make_run(*(f"l{i:03}" for i in range(100)))
    took = []
    for many in (500, 2000):
        events = [event(OUTPUT, f"l{i % 100:03}", 100 + i // 100) for i in range(many)]
        case = Case(recorded(events, run=run, count=140))
        couplings(case)  # figures are read once
        start = time.perf_counter()
        found = couplings(case)
        took.append(time.perf_counter() - start)
        assert len({c.consequence.id for c in found}) == len(found)
    assert took[1] < 4 * 4 * took[0] + 0.2
