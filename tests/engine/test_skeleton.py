# SPDX-License-Identifier: MIT
"""The engine is discovered through its entry point, answers nothing yet, and core answers."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.plugins import PluginHost


def test_engine_is_discovered_and_healthy():
    (engine,) = [one for one in PluginHost().describe() if one.name == "engine"]
    assert engine.distribution == "neuraldbg-engine"
    assert engine.error in {None, ""}


def test_core_answers_where_the_engine_has_no_opinion():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        for step in range(30):
            x = torch.randn(16, 4)
            if step == 20:
                x[3, 1] = float("nan")
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    first = dbg.explain_failure()[0]
    assert (first.cause, first.onset) == ("nan_in_input", 20)


def test_engine_imports_no_torch():
    code = "import neuraldbg_engine.plugin, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
