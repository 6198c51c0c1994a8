# SPDX-License-Identifier: MIT
"""What core says where the engine is absent, broken or too old: its own answer, and one line."""

from __future__ import annotations

import types

import pytest

from neuraldbg.hookspecs import hookimpl
from neuraldbg.inquiry import WITHOUT_ENGINE, Inquiry
from neuraldbg.plugins import PluginHost
from neuraldbg.plugins.loading import Found
from neuraldbg.reasoning import reason
from neuraldbg.testing import recorded_run


def engine(function):
    module = types.ModuleType("engine")
    module.neuraldbg_reason = hookimpl(specname="neuraldbg_reason")(function)
    return module


@pytest.fixture
def trace():
    return recorded_run("nan_input")


def test_without_the_engine_core_answers_and_one_line_says_what_it_would_add(trace):
    inquiry = Inquiry(trace, PluginHost(discover=False))
    assert inquiry.explain_failure() == reason(trace) != []
    assert inquiry.summary().count(WITHOUT_ENGINE) == 1
    assert "neuraldbg-engine" not in str([h.model_dump() for h in inquiry.explain_failure()])


def test_a_healthy_run_without_the_engine_says_nothing_of_it():
    inquiry = Inquiry(recorded_run("healthy"), PluginHost(discover=False))
    assert "neuraldbg-engine" not in inquiry.summary()


def test_with_the_engine_its_answer_stands_and_nothing_is_said_of_editions(trace):
    host = PluginHost(discover=False, plugins={"engine": engine(lambda trace: [])})
    inquiry = Inquiry(trace, host)
    assert inquiry.explain_failure() == []
    assert "neuraldbg-engine" not in inquiry.summary()


def test_an_engine_that_fails_in_its_hook_is_named_once_and_core_answers(trace, caplog):
    def fails(trace):
        raise RuntimeError("on purpose")

    inquiry = Inquiry(trace, PluginHost(discover=False, plugins={"engine": engine(fails)}))
    assert inquiry.explain_failure() == reason(trace)
    inquiry.get_causal_hypotheses()
    assert [("'engine'" in m, "on purpose" in m) for m in caplog.messages] == [(True, True)]
    assert WITHOUT_ENGINE not in inquiry.summary()


def test_an_engine_that_does_not_load_is_named_once_and_core_answers(trace, caplog, monkeypatch):
    def load():
        raise ImportError("engine 1.9 requires 'neuraldbg<1.9', and this is neuraldbg 2.0.0")

    found = Found("engine", "an entry point", load, "neuraldbg-engine", "1.9.0")
    monkeypatch.setattr("neuraldbg.plugins.loading.find", lambda *_, **__: iter([found]))
    inquiry = Inquiry(trace, PluginHost())
    assert inquiry.explain_failure() == reason(trace)
    assert [("'engine'" in m, "requires" in m) for m in caplog.messages] == [(True, True)]
