# SPDX-License-Identifier: MIT
"""Detectors run under guard: checked, collapsed, bounded, and survived."""

from __future__ import annotations

import types

import pytest

from neuraldbg.errors import PluginError
from neuraldbg.hookspecs import hookimpl
from neuraldbg.plugins import DetectorRunner, PluginHost
from neuraldbg.plugins.runner import PER_LAYER
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.vocabulary import EventType, Severity
from neuraldbg.settings import Settings
from neuraldbg.testing import RUNS, make_facts, make_run, recorded_run, replay, steps_of

RUN = make_run("fc1", "head")


def event(step, **changes):
    fields = {
        "event_type": EventType.DATA_ANOMALY,
        "step": step,
        "step_range": (step - 1, step),
        "from_state": "normal",
        "to_state": "outlier",
        "confidence": 0.5,
    }
    return SemanticEvent(**fields | changes)


class Quiet:
    name = "made"
    event_types = frozenset({EventType.DATA_ANOMALY})

    def __init__(self, run, settings):
        self.run = run

    def on_step(self, facts):
        return []

    def on_finish(self):
        return []


def detector(name="made", **methods):
    return type("Made", (Quiet,), {"name": name, **methods})


def runner(*classes, is_strict=False):
    module = types.ModuleType("made")

    @hookimpl
    def neuraldbg_detectors():
        return classes

    module.neuraldbg_detectors = neuraldbg_detectors
    host = PluginHost(
        is_strict=is_strict, plugins={"hostile": module}, discover=False, disabled="builtin"
    )
    return DetectorRunner(host, RUN, Settings())


def raises(*_):
    raise ValueError("on purpose")


def endless(*_):
    while True:
        yield event(1)


def late(*_):
    yield event(1)
    raise ValueError("on purpose")


HOSTILE = {
    "construct": detector(__init__=raises),
    "step": detector(on_step=raises),
    "finish": detector(on_finish=raises),
    "generator": detector(on_step=late),
    "endless": detector(on_step=endless),
    "none": detector(on_step=lambda *_: None),
    "number": detector(on_step=lambda *_: 7),
    "text": detector(on_step=lambda *_: "text"),
    "rubbish": detector(on_step=lambda *_: [event(1), object()]),
    "undeclared type": detector(
        on_step=lambda *_: [event(1, event_type=EventType.NUMERICAL_ERROR)]
    ),
    "unvalidated": detector(
        on_step=lambda *_: [event(1).model_copy(update={"confidence": "high", "evidence": 7})]
    ),
}


def run_strictly(kind):
    strict = runner(kind, is_strict=True)
    strict.on_step(make_facts(RUN, 0))
    strict.on_finish()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_detector_is_named_once_switched_off_and_survived(what, caplog):
    good = detector("good", on_step=lambda _, facts: [event(facts.step)])
    one = runner(HOSTILE[what], good)
    events = [found for step in range(3) for found in one.on_step(make_facts(RUN, step))]
    events += one.on_finish()

    failures = [found for found in events if found.event_type == EventType.PLUGIN_FAILURE]
    assert len(failures) == len(caplog.messages) == 1
    assert failures[0].evidence["plugin"] == "hostile"
    assert failures[0].detector == "made"
    assert "detector 'made' of plugin 'hostile' failed in" in caplog.messages[0]
    assert one.active == ("good",)
    assert {found.detector for found in events} == {"made", "good"}
    with pytest.raises(PluginError, match="'made' of plugin 'hostile'"):
        run_strictly(HOSTILE[what])


def test_an_interruption_passes_through():
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner(detector(on_step=interrupt)).on_step(make_facts(RUN, 0))


def test_two_detectors_of_one_name_the_second_is_refused(caplog):
    one = runner(detector(), detector())
    assert one.active == ("made",)
    (told,) = one.on_step(make_facts(RUN, 3))
    assert (told.event_type, told.step) == (EventType.PLUGIN_FAILURE, 3)
    assert len(caplog.messages) == 1


def test_events_bear_the_name_of_their_detector():
    one = runner(detector("honest", on_step=lambda *_: [event(0, detector="liar")]))
    (found,) = one.on_step(make_facts(RUN, 0))
    assert found.detector == "honest"


def test_repeats_within_50_steps_are_one_event():
    one = runner(detector(on_step=lambda _, facts: [event(facts.step)]))
    found = {}
    for step in (10, 11, 60, 110, 161):
        found |= {each.id: each for each in one.on_step(make_facts(RUN, step))}
    first, second = found.values()
    assert (first.step, first.count, first.last_step) == (10, 4, 110)
    assert (second.step, second.count, second.last_step) == (161, 1, None)


def test_a_detector_may_count_by_itself():
    def counting(self, facts):
        return [event(10, count=facts.step, last_step=facts.step)]

    one = runner(detector(on_step=counting))
    for step in (10, 20, 400):
        (found,) = one.on_step(make_facts(RUN, step))
        assert one.fresh == ((found,) if step == 10 else ())
    assert (found.step, found.count, found.last_step) == (10, 400, 400)


def test_severity_and_confidence_of_a_repeat_only_rise():
    answers = iter(
        [
            event(1, severity=Severity.WARNING, confidence=0.5, evidence={"x": 1.0}),
            event(2, severity=Severity.CRITICAL, confidence=0.4, evidence={"x": 2.0}),
            event(3, severity=Severity.INFO, confidence=0.9),
        ]
    )
    one = runner(detector(on_step=lambda *_: [next(answers)]))
    for step in range(3):
        (found,) = one.on_step(make_facts(RUN, step))
    assert (found.severity, found.confidence) == (Severity.CRITICAL, 0.9)
    assert found.evidence == {"x": 1.0}


def test_different_layers_and_states_are_different_events():
    def three(*_):
        return [event(1, layer="fc1"), event(1, layer="head"), event(1, to_state="odd")]

    assert len(runner(detector(on_step=three)).on_step(make_facts(RUN, 1))) == 3


def test_events_per_detector_and_layer_are_bounded_and_the_last_says_so():
    one = runner(detector(on_step=lambda _, facts: [event(facts.step, layer="fc1")]))
    found = [each for step in range(0, 6000, 100) for each in one.on_step(make_facts(RUN, step))]
    assert len(found) == PER_LAYER
    assert "note" not in found[-2].evidence
    assert "no further ones" in found[-1].evidence["note"]


def test_events_per_run_are_bounded_and_the_last_says_so(monkeypatch):
    monkeypatch.setattr("neuraldbg.plugins.runner.PER_RUN", 30)

    def many(self, facts):
        return [event(facts.step, layer=str(n)) for n in range(8)]

    one = runner(detector("one", on_step=many), detector("two", on_step=many))
    found = [each for step in range(0, 900, 100) for each in one.on_step(make_facts(RUN, step))]
    assert len(found) == 30
    assert "number 30" in found[-1].evidence["note"]


def test_a_repeat_of_a_known_event_is_counted_beyond_the_bound():
    one = runner(detector(on_step=lambda _, facts: [event(facts.step)]))
    for step in range(0, 100 * PER_LAYER, 100):
        one.on_step(make_facts(RUN, step))
    (found,) = one.on_step(make_facts(RUN, 100 * PER_LAYER - 99))
    assert found.count == 2


def test_failures_of_loading_are_told_on_the_first_step():
    host = PluginHost(plugins={"odd": object.__new__(Odd)}, discover=False, disabled="builtin")
    one = DetectorRunner(host, RUN, Settings())
    (told,) = one.on_step(make_facts(RUN, 5))
    assert (told.step, told.evidence["place"]) == (5, "load")
    assert one.on_finish() == []


class Odd:
    @hookimpl
    def neuraldbg_detektors(self):
        return []


@pytest.mark.parametrize("name", RUNS)
def test_offline_events_are_those_of_the_live_run(name):
    """All built-in detectors, live over the facts and again over the recorded trace."""
    trace = recorded_run(name)
    host = PluginHost(discover=False)
    live = DetectorRunner(host, trace.run, Settings())
    found = {}
    for facts in steps_of(name):
        found |= {each.id: each for each in live.on_step(facts)}
    found |= {each.id: each for each in live.on_finish()}
    again = [each for kind in host.detectors() for each in replay(kind, trace)]
    assert sorted(map(repr, again)) == sorted(map(repr, found.values()))
