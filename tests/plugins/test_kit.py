# SPDX-License-Identifier: MIT
"""The author's kit: it finds the faults it is there for, and the built-ins pass it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from neuraldbg.errors import PluginError
from neuraldbg.plugins import PluginHost
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerInfo
from neuraldbg.schema.vocabulary import EventType
from neuraldbg.testing import (
    RUNS,
    check_detector,
    feed,
    make_facts,
    make_run,
    recorded_run,
    steps_of,
)

BUILT_IN = PluginHost(discover=False, disabled="").detectors()


class Quiet:
    name = "made"
    event_types = frozenset({EventType.DATA_ANOMALY})

    def __init__(self, run, settings): ...

    def on_step(self, facts):
        return []

    def on_finish(self):
        return []


def event(step):
    return SemanticEvent(
        event_type="data_anomaly",
        step=step,
        step_range=(step, step),
        from_state="a",
        to_state="b",
        confidence=1,
    )


@pytest.mark.parametrize("detector", BUILT_IN, ids=lambda detector: detector.name)
def test_built_in_detectors_keep_the_contract(detector):
    check_detector(detector)


def test_a_quiet_detector_keeps_the_contract():
    check_detector(Quiet)


class Talkative(Quiet):
    def on_step(self, facts):
        return [event(facts.step)]


class Hoarding(Quiet):
    kept = None

    def on_step(self, facts):
        self.kept = [*(self.kept or []), facts.activation]
        return []


class Meddling(Quiet):
    def on_step(self, facts):
        facts.activation[:] = 0
        return []


class Random(Quiet):
    count = 0

    def on_step(self, facts):
        Random.count += 1
        return [event(Random.count)] if facts.loss != facts.loss else []


class Rigid(Quiet):
    def on_step(self, facts):
        int(facts.loss)
        return []


class Impolite(Quiet):
    name = "Not a name"


@pytest.mark.parametrize(
    ("detector", "words"),
    [
        (Talkative, "speaks on a healthy run"),
        (Hoarding, "keeps arrays of"),
        (Meddling, "changes facts.activation"),
        (Random, "differs on 'nan_loss'"),
        (Rigid, "cannot convert float NaN"),
        (Impolite, "lower_snake_case"),
    ],
)
def test_each_broken_promise_is_found(detector, words):
    with pytest.raises((AssertionError, PluginError, TypeError), match=words):
        check_detector(detector)


def test_a_detector_that_imports_torch_is_found(monkeypatch):
    import torch

    monkeypatch.setitem(globals(), "torch", torch)
    with pytest.raises(AssertionError, match="imports torch"):
        check_detector(Quiet)


@pytest.mark.parametrize("name", RUNS)
def test_a_named_run_is_the_same_on_every_call(name):
    once, again = recorded_run(name), recorded_run(name)
    assert once.facts.matrix.tobytes() == again.facts.matrix.tobytes()
    assert once.step_count == 200
    assert np.array_equal(once.loss.values, again.loss.values, equal_nan=True)


def test_unknown_runs_and_rows_are_named_with_those_that_exist():
    with pytest.raises(KeyError, match="healthy"):
        steps_of("unhealthy")
    with pytest.raises(KeyError, match="'fc1', 'fc2', 'head'"):
        make_facts(make_run(), 0, activation={("fc9", ActivationStat.RMS): 1.0})


def test_layers_may_be_given_whole():
    run = make_run(LayerInfo(path="", kind="Thing", role="other"))
    assert [one.name for one in run.parameters] == ["weight"]
    assert make_facts(run, 0, loss=None).losses == {}


def test_feeding_nothing_still_finishes():
    class Last(Quiet):
        def on_finish(self):
            return [event(0)]

    assert len(feed(Last, [])) == 1


def test_the_kit_and_the_fixtures_need_no_torch():
    source = (
        "import sys, neuraldbg._pytest_plugin\n"
        "assert not {'numpy', 'torch', 'pydantic'} & set(sys.modules), sorted(sys.modules)\n"
        "import neuraldbg.testing\n"
        "neuraldbg.testing.recorded_run('healthy').facts\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True)


def test_fixtures_give_a_run_a_trace_and_a_host(neuraldbg_run, neuraldbg_recorded, neuraldbg_host):
    assert neuraldbg_run == make_run()
    assert neuraldbg_recorded("healthy").step_count == 200
    assert neuraldbg_host().is_strict
