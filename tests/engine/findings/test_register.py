# SPDX-License-Identifier: MIT
"""Every finding is graded between 0 and 1, stable in order, and quiet on a healthy run."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace

import pytest

from neuraldbg.testing import recorded_run
from neuraldbg_engine.findings import Case, all_findings, registered
from neuraldbg_engine.findings import finding as contract


@pytest.fixture(scope="module", params=["healthy", "vanishing_gradient", "dead_layer", "nan_loss"])
def found(request):
    return all_findings(Case(recorded_run(request.param)))


def test_grades_lie_between_0_and_1_or_are_unavailable(found):
    assert all(f.grade is None or 0.0 <= f.grade <= 1.0 for f in found.values())
    assert any(f.grade is not None for f in found.values())


def test_findings_stand_in_the_order_in_which_they_are_registered(found):
    assert list(found) == list(registered())
    assert all(name == f.name for name, f in found.items())


def test_what_holds_has_figures_and_words(found):
    for f in found.values():
        if f.grade:
            assert f.says, f.name
            assert f.figures, f.name


def test_healthy_run_has_no_fault_of_any_kind():
    found = all_findings(Case(recorded_run("healthy")))
    loud = {n: f.grade for n, f in found.items() if f.holds and not registered()[n].is_context}
    assert loud == {}


def test_finding_that_raises_is_unavailable_named_and_alone(monkeypatch, caplog):
    def fails(case):
        raise ZeroDivisionError("on purpose")

    broken = replace(registered()["updates.high"], look=fails)
    monkeypatch.setitem(contract._ENTRIES, "updates.high", broken)
    with caplog.at_level(logging.ERROR, "neuraldbg"):
        found = all_findings(Case(recorded_run("healthy")))
    assert found["updates.high"].grade is None
    assert found["updates.low"].grade == 0.0
    assert "updates.high" in caplog.text


def test_order_does_not_depend_on_which_group_was_imported_first():
    code = (
        "import neuraldbg_engine.findings.specialists, neuraldbg_engine.findings.data;"
        "from neuraldbg_engine.findings import registered; print(*registered())"
    )
    seen = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert seen.split() == list(registered())


def test_there_are_at_least_80_direct_findings_each_with_meaning_and_source():
    direct = [e for n, e in registered().items() if not n.startswith(("specialist.", "observed."))]
    assert len(direct) >= 80
    assert all(entry.meaning.endswith(".") and entry.source for entry in registered().values())
    assert all("." in entry.name for entry in registered().values())


def test_name_that_is_taken_is_refused():
    assert "updates.high" in registered()
    with pytest.raises(ValueError, match="registered twice"):
        contract.finding("updates.high", "nowhere", meaning="Again.")(lambda case: None)


@pytest.mark.parametrize(
    ("run", "name", "layer", "step"),
    [
        ("nan_loss", "loss.not_finite", None, 100),
        ("dead_layer", "activations.dead", "fc2", 100),
        ("nan_input", "specialist.nan_in_input", None, 100),
    ],
)
def test_fault_is_found_with_its_layer_and_step(run, name, layer, step):
    one = all_findings(Case(recorded_run(run)))[name]
    assert one.holds
    assert one.layer == layer
    assert one.onset.interval() == (step, step)
