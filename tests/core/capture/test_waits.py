# SPDX-License-Identifier: MIT
"""A healthy step waits for no accelerator: every read from a simulated one is counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / "lab/far_programs.py"
AUDITED = 9
"""First steps on which the loss is audited, or the wiring looked at."""
HEALTHY = ("plain", "clipped", "scaled", "reading")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def told() -> Any:
    """Run the programs in a process of their own: the device stays registered with torch."""
    command = [sys.executable, str(PROGRAMS)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_step_reads_nothing_from_the_device(told, name):
    added = told[name]["added"]
    assert sum(added[:AUDITED]) > 0, "the audits of the first steps must be seen by the count"
    assert added[AUDITED:] == [0] * len(added[AUDITED:])
    assert told[name]["said"] == []


@pytest.mark.parametrize("name", [*HEALTHY, "born"])
def test_weights_on_the_device_are_those_of_the_unwatched_run(told, name):
    assert told[name]["is_same"]


def test_a_nan_is_told_with_its_module_and_step_and_with_what_would_name_its_operation(told):
    sentence, layer, step = told["born"]["said"][0]
    assert (layer, step) == ("1", 14)
    assert "sync=True names the operation" in sentence
