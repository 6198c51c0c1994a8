# SPDX-License-Identifier: MIT
"""The engine is discovered through its entry point and answers in the place of core."""

from __future__ import annotations

import subprocess
import sys

from neuraldbg.inquiry import Inquiry
from neuraldbg.plugins import PluginHost
from neuraldbg.reasoning import reason
from neuraldbg.testing import recorded_run


def test_engine_is_discovered_and_healthy():
    (engine,) = [one for one in PluginHost().describe() if one.name == "engine"]
    assert engine.distribution == "neuraldbg-engine"
    assert engine.error in {None, ""}
    assert engine.hooks == ("neuraldbg_couplings", "neuraldbg_reason")


def test_the_answer_is_the_engines_and_says_more_than_core_does():
    trace = recorded_run("nan_input")
    first, plain = Inquiry(trace).explain_failure()[0], reason(trace)[0]
    assert (first.cause, first.onset, first.layer) == (plain.cause, plain.onset, plain.layer)
    assert first.details
    assert not plain.details


def test_a_healthy_run_stays_quiet():
    assert Inquiry(recorded_run("healthy")).explain_failure() == []


def test_engine_imports_no_torch():
    code = (
        "import sys, neuraldbg_engine.plugin, neuraldbg_engine.explain; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
