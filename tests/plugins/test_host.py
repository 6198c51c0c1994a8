# SPDX-License-Identifier: MIT
"""The host loads, calls, names, switches off and survives plugins."""

from __future__ import annotations

import importlib.metadata
import types

import click
import pytest

import neuraldbg
from neuraldbg import hookspecs
from neuraldbg.causes import Cause
from neuraldbg.errors import PluginError
from neuraldbg.hookspecs import hookimpl
from neuraldbg.plugins import PluginHost
from neuraldbg.plugins.compatibility import release, unmet
from neuraldbg.schema.hypotheses import CausalHypothesis, Coupling
from neuraldbg.testing import make_run, recorded_run


def hypothesis(words="made up", cause="unknown"):
    return CausalHypothesis(
        failure_type="data_anomaly", cause=cause, confidence=0.5, description=words
    )


def nothing():
    return []


def plugin(**hooks):
    """Return a plugin module with these hook implementations."""
    module = types.ModuleType("made")
    for name, function in hooks.items():
        setattr(module, name, hookimpl(function))
    return module


def host(*, is_strict=False, disabled="", discover=False, **plugins):
    return PluginHost(is_strict=is_strict, plugins=plugins, discover=discover, disabled=disabled)


def raises(*_, **__):
    raise ValueError("on purpose")


def described(one, name):
    (found,) = [each for each in one.describe() if each.name == name]
    return found


@pytest.fixture
def entries(monkeypatch):
    """Return what installs entry points of the given (name, load, distribution)."""

    def install(*made):
        points = []
        for name, load, distribution in made:
            point = types.SimpleNamespace(name=name, value=f"{name}.plugin", load=load)
            point.dist = distribution
            points.append(point)
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)

    return install


def distribution(name, version, *requires):
    return types.SimpleNamespace(name=name, version=version, requires=list(requires))


def test_built_in_detectors_come_first_through_the_same_hook():
    class Late:
        name = "late"
        event_types = frozenset()

        def __init__(self, run, settings): ...
        def on_step(self, facts): ...
        def on_finish(self): ...

    one = host(late=plugin(neuraldbg_detectors=lambda: [Late]))
    names = [detector.name for detector in one.detectors()]
    assert names[-1] == "late"
    assert len(names) > 5
    assert described(one, "builtin").hooks == ("neuraldbg_detectors",)
    assert one.failures == ()


def test_plugins_are_found_by_their_entry_points_and_described(entries):
    module = plugin(neuraldbg_causes=nothing)
    entries(("good", lambda: module, distribution("neuraldbg-good", "3.1")))
    found = described(host(discover=True), "good")
    assert found == ("good", "neuraldbg-good", "3.1", ("neuraldbg_causes",), "on", None)


def test_one_entry_point_that_fails_does_not_stop_the_others(entries, caplog):
    module = plugin(neuraldbg_causes=nothing)
    entries(("bad", raises, None), ("worse", raises, None), ("zebra", lambda: module, None))
    one = host(discover=True)
    assert described(one, "bad").state == described(one, "worse").state == "off"
    assert "ValueError('on purpose')" in described(one, "bad").error
    assert described(one, "zebra").state == "on"
    assert caplog.messages == [
        "plugin 'bad' failed in 'load' and is off for this run: ValueError('on purpose')",
        "plugin 'worse' failed in 'load' and is off for this run: ValueError('on purpose')",
    ]


def test_two_plugins_of_one_name_are_told_apart(entries):
    entries(("same", plugin, None), ("same", plugin, None))
    (failure,) = host(discover=True).failures
    assert "is taken" in failure.error


def test_a_plugin_that_says_it_needs_another_version_is_not_loaded(entries):
    old = distribution("neuraldbg-engine", "1.0", "numpy", "neuraldbg<1.9,>=1.8")
    entries(("engine", raises, old))
    one = host(discover=True)
    assert "requires 'neuraldbg<1.9,>=1.8'" in described(one, "engine").error
    assert one.reason(recorded_run("healthy")) is None


@pytest.mark.parametrize(
    ("requirement", "is_met"),
    [
        ("neuraldbg<2.1,>=2.0", True),
        ("neuraldbg>=2.1", False),
        ("neuraldbg (>=2.0,<2.1)", True),
        ("neuraldbg[all]<2.0 ; python_version > '3'", False),
        ("neuraldbg==2.0.0", True),
        ("neuraldbg!=2.0.0", False),
        ("NeuralDBG>2", False),
        ("neuraldbg<=1.99", False),
        ("neuraldbg~=1.0", True),
        ("neuraldbg", True),
        ("neuraldbg-engine<1", True),
    ],
)
def test_requirements_are_compared_with_the_version(requirement, is_met):
    assert (unmet(["torch", requirement], "2.0.0") is None) == is_met


def test_releases_are_numbers_padded_to_three():
    assert release("2.1rc1") == (2, 1, 0)
    assert release("odd") == (0, 0, 0)


@pytest.mark.parametrize(
    ("disabled", "states"),
    [
        ("", ("on", "on", "on")),
        ("one", ("on", "disabled", "on")),
        ("one, two", ("on", "disabled", "disabled")),
        ("all", ("on", "disabled", "disabled")),
        ("builtin", ("disabled", "on", "on")),
    ],
)
def test_the_environment_variable_names_what_is_not_loaded(monkeypatch, disabled, states):
    monkeypatch.setenv("NEURALDBG_DISABLE_PLUGINS", disabled)
    plugins = {"one": plugin(), "two": plugin()}
    one = PluginHost(plugins=plugins, discover=False)
    assert tuple(described(one, name).state for name in ("builtin", "one", "two")) == states


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (plugin(neuraldbg_detector=nothing), "did you mean 'neuraldbg_detectors'?"),
        (plugin(neuraldbg_something_else_entirely=nothing), "there is no hook"),
        (plugin(neuraldbg_event=lambda evnt: None), "evnt"),
        (types.SimpleNamespace(neuraldbg_reason=lambda trace: None), "unhashable"),
    ],
)
def test_a_hook_that_could_never_be_called_is_refused_by_name(made, words):
    one = host(made=made)
    assert words in described(one, "made").error
    assert described(one, "made").state == "off"
    assert described(one, "made").hooks == ()


def test_a_hook_without_its_mark_and_a_wrapper_are_refused_by_name():
    unmarked = types.ModuleType("unmarked")
    unmarked.neuraldbg_detectors = raises
    unmarked.neuraldbg_helper = raises
    wrapper = types.ModuleType("wrapper")

    @hookimpl(wrapper=True)
    def neuraldbg_reason(trace):
        return (yield)

    wrapper.neuraldbg_reason = neuraldbg_reason
    one = host(unmarked=unmarked, wrapper=wrapper)
    assert "'neuraldbg_detectors' is not marked" in described(one, "unmarked").error
    assert "is a wrapper" in described(one, "wrapper").error


@pytest.mark.parametrize(
    ("hook", "call"),
    [
        ("neuraldbg_detectors", lambda one: one.detectors()),
        ("neuraldbg_causes", lambda one: one.causes()),
        ("neuraldbg_reporters", lambda one: one.reporters()),
        ("neuraldbg_interventions", lambda one: one.interventions()),
        ("neuraldbg_commands", lambda one: one.commands(click.Group())),
        ("neuraldbg_run_started", lambda one: one.run_started(make_run())),
        ("neuraldbg_run_finished", lambda one: one.run_finished(recorded_run("healthy"))),
        ("neuraldbg_reason", lambda one: one.reason(recorded_run("healthy"))),
        ("neuraldbg_couplings", lambda one: one.couplings(recorded_run("healthy"), 5)),
    ],
)
def test_a_hook_that_raises_is_named_once_and_called_no_more(hook, call, caplog):
    calls = []

    def fails(**arguments):
        calls.append(hook)
        raise ValueError("on purpose")

    made = types.ModuleType("made")
    source = ARGUMENTS.get(hook, "")
    scope = {"fails": fails}
    exec(f"def {hook}({source}): return fails()", scope)  # noqa: S102 - a function of that name
    setattr(made, hook, hookimpl(scope[hook]))
    one = host(made=made)
    call(one)
    call(one)
    assert calls == [hook]
    assert len(caplog.messages) == 1
    assert f"failed in '{hook}'" in caplog.messages[0]
    with pytest.raises(PluginError, match="on purpose"):
        call(host(made=made, is_strict=True))


ARGUMENTS = {
    "neuraldbg_commands": "register",
    "neuraldbg_run_started": "run",
    "neuraldbg_run_finished": "trace",
    "neuraldbg_reason": "trace, vocabulary",
    "neuraldbg_couplings": "trace, window",
}


@pytest.mark.parametrize("rubbish", [7, ["text"], "text", [None], [object()]])
@pytest.mark.parametrize("hook", ["detectors", "causes", "reporters", "interventions"])
def test_a_hook_that_returns_rubbish_is_named_and_the_rest_is_kept(hook, rubbish):
    one = host(made=plugin(**{f"neuraldbg_{hook}": lambda: rubbish}))
    kept = getattr(one, hook)()
    assert rubbish not in kept
    assert described(one, "made").state == "off"
    assert described(one, "builtin").state == "on"


def test_nothing_returned_is_nothing_contributed():
    one = host(made=plugin(neuraldbg_causes=lambda: None, neuraldbg_detectors=lambda: None))
    assert one.causes() == []
    assert one.detectors()
    assert one.failures == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "Not Snake"}, "lower_snake_case"),
        ({"event_types": {"data_anomaly"}}, "event_types"),
        ({"on_finish": None}, "on_finish"),
    ],
)
def test_a_class_that_is_no_detector_is_refused_by_what_it_lacks(changes, words):
    fields = {
        "name": "made",
        "event_types": frozenset(),
        "on_step": lambda *_: [],
        "on_finish": lambda _: [],
    }
    made = type("Made", (), fields | changes)
    one = host(made=plugin(neuraldbg_detectors=lambda: [made]))
    assert made not in one.detectors()
    assert words in described(one, "made").error


def test_causes_extend_the_vocabulary_and_never_redefine_it():
    new = Cause(id="mine", failures=("dead_neurons",), signs="x", remedy="y")
    taken = Cause(id="dying_relu", failures=("dead_neurons",), signs="x", remedy="y")
    one = host(made=plugin(neuraldbg_causes=lambda: [new, taken]))
    assert one.vocabulary().cause("mine") == new
    assert one.vocabulary().cause("dying_relu") != taken
    assert "dying_relu" in described(one, "made").error


def test_reporters_keep_the_first_of_a_name():
    mine = type("Mine", (), {"name": "mine", "suffix": ".m", "render": lambda *_: ""})
    again = type("Again", (), {"name": "mine", "suffix": ".m", "render": lambda *_: ""})
    one = host(
        first=plugin(neuraldbg_reporters=lambda: [mine]),
        second=plugin(neuraldbg_reporters=lambda: [again]),
    )
    assert mine in one.reporters()
    assert again not in one.reporters()
    assert described(one, "second").state == "off"


def test_commands_are_added_under_names_that_are_free():
    group = click.Group(commands={"explain": click.Command("explain")})

    def good(register):
        register(click.Command("mine"))

    def taken(register):
        register(click.Command("explain"))

    one = host(
        good=plugin(neuraldbg_commands=good),
        taken=plugin(neuraldbg_commands=taken),
        odd=plugin(neuraldbg_commands=ODD),
    )
    one.commands(group)
    assert sorted(group.commands) == ["explain", "mine"]
    assert "is taken" in described(one, "taken").error
    assert "click.Command" in described(one, "odd").error


def ODD(register):  # noqa: N802 - a constant of the test
    register("text")


def test_an_event_is_passed_on_once():
    seen = []

    def notice(event):
        seen.append(event)

    one = host(made=plugin(neuraldbg_event=notice))
    one.event(EVENT)
    one.event(EVENT.model_copy(update={"count": 4}))
    assert seen == [EVENT]
    one.run_started(make_run())
    one.event(EVENT)
    assert len(seen) == 2


EVENT = neuraldbg.SemanticEvent(
    event_type="data_anomaly",
    step=1,
    step_range=(0, 1),
    from_state="a",
    to_state="b",
    confidence=1,
)


def test_the_last_plugin_that_answers_reasons():
    one = host(
        alpha=plugin(neuraldbg_reason=lambda trace: [hypothesis("alpha")]),
        beta=plugin(neuraldbg_reason=lambda trace: (hypothesis("beta"),)),
        gamma=plugin(neuraldbg_reason=lambda trace: None),
    )
    assert one.reason(recorded_run("healthy")) == [hypothesis("beta")]


def test_an_empty_answer_is_an_answer():
    one = host(made=plugin(neuraldbg_reason=lambda trace: []))
    assert one.reason(recorded_run("healthy")) == []


@pytest.mark.parametrize("rubbish", [7, "text", [1], [hypothesis(), None], {"a": 1}])
def test_reasoning_that_returns_rubbish_is_named_and_core_answers(rubbish):
    one = host(
        engine=plugin(
            neuraldbg_reason=lambda trace: rubbish, neuraldbg_couplings=lambda trace, window: []
        )
    )
    assert one.reason(recorded_run("healthy")) is None
    assert "CausalHypothesis" in described(one, "engine").error
    assert one.couplings(recorded_run("healthy"), 5) is None


def test_couplings_are_checked_too():
    pair = Coupling(
        trigger=EVENT, consequence=EVENT, step_difference=0, confidence=1, mechanism="x"
    )
    one = host(made=plugin(neuraldbg_couplings=lambda trace, window: [pair] * window))
    assert one.couplings(recorded_run("healthy"), 2) == [pair, pair]


def test_an_interruption_passes_through():
    def interrupt(trace):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        host(made=plugin(neuraldbg_reason=interrupt)).reason(recorded_run("healthy"))


def test_a_strict_host_raises_while_loading():
    with pytest.raises(PluginError, match="did you mean"):
        host(is_strict=True, made=plugin(neuraldbg_detector=nothing))


def test_an_exception_that_cannot_be_shown_is_named_by_its_type():
    class Awkward(Exception):  # noqa: N818
        def __repr__(self):
            raise RuntimeError

    def awkward(trace):
        raise Awkward

    one = host(made=plugin(neuraldbg_reason=awkward))
    assert one.reason(recorded_run("healthy")) is None
    assert described(one, "made").error.endswith(": Awkward")


def test_the_face_exports_the_marker():
    assert neuraldbg.hookimpl is hookspecs.hookimpl
