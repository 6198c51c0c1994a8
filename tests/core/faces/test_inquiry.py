# SPDX-License-Identifier: MIT
"""Every question of the public API, over recorded traces."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

import neuraldbg
from neuraldbg.errors import TraceError, UnknownNameError
from neuraldbg.inquiry import Inquiry, load_trace
from neuraldbg.schema.vocabulary import (
    ActivationHealth,
    DataHealth,
    EventType,
    FailureType,
    GradientHealth,
    OptimizerHealth,
)

# -- a healthy run ---------------------------------------------------------------------------


def test_healthy_run_is_quiet(healthy):
    assert healthy.explain_failure() == []
    assert healthy.explain_failure("vanishing_gradients") == []
    assert healthy.get_causal_hypotheses() == []
    assert healthy.get_root_causes() == []
    assert healthy.trace_causal_chain("gradient_vanishing") == []
    assert healthy.detect_coupled_failures() == []
    assert healthy.first_failure_layer == {}
    assert healthy.first_failure_step == {}
    assert healthy.events == healthy.get_events() == []


def test_healthy_run_says_so(healthy):
    assert repr(healthy) == "<Inquiry: 50 steps, no failure found>"
    assert "no failure found" in healthy.summary()
    assert "no failure found" in healthy.export_mermaid_causal_graph()


def test_events_alone_are_no_failure(record, kit):
    inquiry = record(events=[kit.PLATEAU])
    assert inquiry.first_failure_step == {}
    assert "1 change of state noted, none of them a failure" in inquiry.summary()


def test_empty_run_says_so(record):
    inquiry = record(steps=0)
    assert repr(inquiry) == "<Inquiry: no step recorded, no failure found>"
    assert inquiry.loss_history == []
    assert inquiry.summary()


def test_one_step_is_singular(record):
    assert "1 step," in repr(record(steps=1))


# -- a failed run ----------------------------------------------------------------------------


def test_hypotheses_come_most_probable_first(failed):
    found = failed.explain_failure()
    assert type(found) is list
    assert [each.cause for each in found] == ["saturating_activations", "init_too_large"]


def test_hypothesis_prints_as_one_sentence(failed):
    told = str(failed.explain_failure()[0])
    assert told.startswith("Gradient vanishing originated in layer 'net.0' at step 28")
    assert "\n" not in told


def test_session_prints_as_a_sentence(failed):
    assert repr(failed) == (
        "<Inquiry: 50 steps, vanishing gradients in 'net.0' from step 28 "
        "(saturating activations, 87%)>"
    )


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("vanishing_gradients", ["saturating_activations"]),
        ("VANISHING_GRADIENTS", ["saturating_activations"]),
        ("Vanishing Gradients", ["saturating_activations"]),
        (FailureType.VANISHING_GRADIENTS, ["saturating_activations"]),
        ("gradient_vanishing", ["saturating_activations"]),
        ("vanishing", ["saturating_activations"]),
        (GradientHealth.VANISHING, ["saturating_activations"]),
        (EventType.GRADIENT_HEALTH_TRANSITION, ["saturating_activations"]),
        ("gradient_health_transition", ["saturating_activations"]),
        (FailureType.SATURATED_ACTIVATIONS, ["init_too_large"]),
        (ActivationHealth.SATURATED, ["saturating_activations", "init_too_large"]),
        ("activation_saturated", ["saturating_activations", "init_too_large"]),
        ("saturated", ["saturating_activations", "init_too_large"]),
        (GradientHealth.SATURATED, []),
        (OptimizerHealth.DIVERGING, []),
        (DataHealth.NAN_DETECTED, []),
        ("init_too_large", ["init_too_large"]),
        ("numerical_error", []),
    ],
)
def test_question_finds_its_answers(failed, name, causes):
    assert [each.cause for each in failed.explain_failure(name)] == causes


def test_failure_type_without_own_hypothesis_is_answered_by_evidence(record, kit):
    spike = kit.event(event_type=EventType.OPTIMIZER_INSTABILITY, layer=None, to_state="loss_spike")
    inquiry = record(events=[spike], hypotheses=[kit.hypothesis(evidence=(spike,))])
    assert inquiry.explain_failure("optimizer_instability")
    assert inquiry.explain_failure("loss_spike")
    assert not inquiry.explain_failure("loss_plateau")


def test_state_of_a_plugin_can_be_asked_for(record, kit):
    odd = kit.event(event_type=EventType.WIRING_FAULT, to_state="Gremlin")
    inquiry = record(events=[odd], hypotheses=[kit.hypothesis(evidence=(odd,))])
    assert inquiry.explain_failure("gremlin")
    assert inquiry.explain_failure("wiring_gremlin")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("vanishing_gradient", "vanishing_gradients"),
        ("gradiant_vanishing", "gradient_vanishing"),
        ("lr_to_high", "lr_too_high"),
        ("", "known are"),
        (7, "known are"),
    ],
)
def test_unknown_name_raises_with_the_nearest(failed, healthy, name, nearest):
    for inquiry in (failed, healthy):
        with pytest.raises(UnknownNameError, match=nearest):
            inquiry.explain_failure(name)
        with pytest.raises(ValueError, match="unknown"):
            inquiry.trace_causal_chain(name)


def test_every_documented_name_is_understood(healthy):
    states = [*GradientHealth, *ActivationHealth, *OptimizerHealth, *DataHealth]
    for name in [*FailureType, *EventType, *states]:
        assert healthy.explain_failure(name) == []
        assert healthy.explain_failure(str(name).upper()) == []


def test_root_causes_are_the_first_occurrences(failed):
    rows = [(row.failure, row.layer, row.step) for row in failed.get_root_causes()]
    assert rows == [
        ("activation_saturated", "net.0", 28),
        ("gradient_vanishing", "net.0", 30),
        ("optimizer_loss_plateau", None, 40),
    ]
    assert failed.first_failure_step["gradient_vanishing"] == 30
    assert failed.first_failure_layer["gradient_vanishing"] == "net.0"


def test_earliest_of_two_occurrences_counts(record, kit):
    later = kit.event(layer="net.1", step=44, step_range=(43, 44))
    inquiry = record(
        events=[later, kit.GONE],
        hypotheses=[kit.hypothesis(evidence=(later, kit.GONE), causal_chain=())],
    )
    assert inquiry.first_failure_step == {"gradient_vanishing": 30}


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("gradient_vanishing", [28, 30]),
        (FailureType.VANISHING_GRADIENTS, [28, 30]),
        (ActivationHealth.SATURATED, [28]),
        ("net.0", [28, 30]),
        ("net.2", []),
        ("saturating_activations", [28, 30, 40]),
        ("data_anomaly", []),
    ],
)
def test_chain_leads_from_root_to_symptom(failed, name, steps):
    assert [link.step for link in failed.trace_causal_chain(name)] == steps


def test_chain_is_found_by_event_id(failed, kit):
    assert [link.step for link in failed.trace_causal_chain(kit.GONE.id)] == [28, 30]


def test_chain_of_a_misspelled_layer_names_the_layer(failed):
    with pytest.raises(UnknownNameError, match=r"net\.0"):
        failed.trace_causal_chain("net.00")


def test_couplings_respect_the_window(failed):
    assert [each.step_difference for each in failed.detect_coupled_failures()] == [2]
    assert failed.detect_coupled_failures(window=1) == []


# -- keeping answers -------------------------------------------------------------------------


def test_answers_are_kept_until_the_trace_grows(record, kit):
    inquiry = record(is_finished=False)
    for _ in range(3):
        inquiry.explain_failure()
        inquiry.detect_coupled_failures()
        repr(inquiry)
    assert inquiry.host.calls == ["reason", "couplings 5"]
    inquiry.writer.write_step(kit.facts(inquiry.trace.run, 50, 1.0))
    inquiry.explain_failure()
    assert inquiry.host.calls == ["reason", "couplings 5", "reason"]
    inquiry.writer.finish()


def test_answers_are_the_callers_to_change(failed):
    failed.explain_failure().clear()
    failed.get_root_causes().clear()
    failed.detect_coupled_failures().clear()
    failed.events.clear()
    assert failed.explain_failure()
    assert failed.get_root_causes()
    assert failed.detect_coupled_failures()
    assert failed.events


def test_core_reasons_where_no_plugin_does(healthy, monkeypatch):
    monkeypatch.setattr(healthy.host, "reason", lambda trace: None)
    monkeypatch.setattr(healthy.host, "couplings", lambda trace, window: None)
    assert healthy.explain_failure() == []
    assert healthy.detect_coupled_failures() == []


def test_repr_survives_a_broken_reasoner(healthy, monkeypatch):
    def broken(trace):
        raise ZeroDivisionError(trace.step_count)

    monkeypatch.setattr(healthy.host, "reason", broken)
    assert "ZeroDivisionError" in repr(healthy)
    assert "ZeroDivisionError" in healthy._repr_mimebundle_()["text/html"]


# -- documents and files ---------------------------------------------------------------------


def test_loss_history_is_plain_floats(failed):
    history = failed.loss_history
    assert len(history) == 50
    assert all(type(value) is float for value in history)
    assert math.isnan(history[-1])


def test_exports_return_their_path(failed, tmp_path):
    path = failed.export_aquarium_package(tmp_path / "events.json")
    assert path == str(tmp_path / "events.json")
    assert json.loads((tmp_path / "events.json").read_text())["schema_version"] == 1
    assert failed.report(tmp_path / "r.html") == str(tmp_path / "r.html")


def test_loaded_trace_gives_the_same_answers(record, kit, tmp_path):
    live = record(path="run.ndbg", events=[kit.FLAT, kit.GONE], hypotheses=[kit.hypothesis()])
    loaded = Inquiry(load_trace(tmp_path / "run.ndbg").trace, live.host)
    assert loaded.explain_failure() == live.explain_failure()
    assert loaded.get_root_causes() == live.get_root_causes()
    assert loaded.loss_history == live.loss_history
    assert loaded.export_mermaid_causal_graph() == live.export_mermaid_causal_graph()
    assert loaded.diagnosis().headline == live.diagnosis().headline


def test_load_trace_is_public():
    assert neuraldbg.load_trace is load_trace


def test_missing_trace_raises_trace_error(tmp_path):
    with pytest.raises(TraceError, match=r"absent\.ndbg"):
        load_trace(tmp_path / "absent.ndbg")


def test_notebook_shows_cards_without_scripts(failed):
    bundle = failed._repr_mimebundle_(include=None, exclude=None)
    assert bundle["text/plain"] == repr(failed)
    assert "saturating activations" in bundle["text/html"]
    assert "<script" not in bundle["text/html"]


def test_exception_of_the_run_is_told(record):
    inquiry = record(exception=ValueError("shapes\ndo not match"))
    assert "stopped by ValueError" in repr(inquiry)
    assert "\n" not in repr(inquiry)


def test_asking_needs_no_torch(record, tmp_path):
    record(path="run.ndbg")
    program = (
        "import sys\n"
        "from neuraldbg import load_trace\n"
        f"run = load_trace({str(tmp_path / 'run.ndbg')!r})\n"
        "assert run.explain_failure() == [], run\n"
        "run.report('out.html'); run.summary(); run._repr_mimebundle_()\n"
        "run.export_aquarium_package('out.json'); run.export_mermaid_causal_graph()\n"
        "import neuraldbg.cli.commands\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
