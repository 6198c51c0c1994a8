# SPDX-License-Identifier: MIT
"""The same trace, explained in another process and beside other plugins: the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

EXPLAIN = """
import sys, types
from neuraldbg.hookspecs import hookimpl
from neuraldbg.inquiry import Inquiry
from neuraldbg.plugins import PluginHost
from neuraldbg.report.aquarium import Aquarium
from neuraldbg.testing import recorded_run
import neuraldbg_engine.plugin as engine

def silent(name):
    module = types.ModuleType(name)
    module.neuraldbg_reason = hookimpl(specname="neuraldbg_reason")(lambda trace: None)
    return module

plugins = {name: engine if name == "engine" else silent(name) for name in sys.argv[1:]}
for name in ("exploding_gradient", "dead_layer", "nan_input", "nan_loss"):
    inquiry = Inquiry(recorded_run(name), PluginHost(discover=False, plugins=plugins))
    text = Aquarium().render(inquiry.diagnosis())
    assert '"cause"' in text
    sys.stdout.write(text)
"""


def explained(seed: int, *plugins: str) -> bytes:
    environment = os.environ | {"PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-c", EXPLAIN, *plugins], env=environment, check=True, capture_output=True
    )
    return done.stdout


@pytest.mark.slow
def test_two_processes_and_orders_of_plugins_give_the_same_bytes():
    assert explained(1, "engine", "zebra") == explained(2, "aardvark", "engine")
