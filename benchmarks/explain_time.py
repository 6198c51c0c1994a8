# SPDX-License-Identifier: MIT
"""How long a long, deep run takes to explain: a file of 100,000 steps of 200 layers.

A real run of that depth, of a few hundred steps, is recorded; its facts are then written again
and again, under step numbers that go on, until the trace has its length. What is timed is what a
user waits for: opening the file and asking why.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS, LAYERS, RECORDED = 100_000, 200, 200


def deep_run() -> Any:
    """Return the trace of a deep sigmoid network that does not learn."""
    import torch
    from torch import nn

    from neuraldbg import NeuralDbg

    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers: list[nn.Module] = []
    for _ in range(LAYERS // 2):
        layers += [nn.Linear(8, 8), nn.Sigmoid()]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 8)
    with NeuralDbg(model) as dbg:
        for _ in range(RECORDED):
            loss = (model(x) - x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    return dbg.trace


def write_long(short: Any, path: Path) -> None:
    """Write the short run's facts to a file until it has its length, and its events once."""
    from neuraldbg.trace import TraceWriter, step_facts

    pattern = list(step_facts(short))
    writer = TraceWriter.open(path, short.run, short.settings)
    for step in range(STEPS):
        facts = pattern[min(step, len(pattern) - 1 - step % 50)]
        writer.write_step(dataclasses.replace(facts, step=step))
        if step == RECORDED:
            for event in short.events:
                writer.write_event(event)
    writer.finish()


def measure() -> dict[str, Any]:
    """Return the seconds from file to answer, by edition, and how large the file is."""
    from neuraldbg.inquiry import Inquiry
    from neuraldbg.plugins import PluginHost
    from neuraldbg.trace import open_trace

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.ndbg"
        write_long(deep_run(), path)
        result: dict[str, Any] = {"steps": STEPS, "layers": LAYERS, "seconds": {}}
        result["file_mb"] = round(path.stat().st_size / 1e6, 1)
        for edition, disabled in (("core", "engine"), ("engine", "")):
            host = PluginHost(disabled=disabled)
            start = time.process_time()
            trace = open_trace(path)
            answers = Inquiry(trace, host).explain_failure()
            result["seconds"][edition] = round(time.process_time() - start, 2)
            result["steps"], result["answers"] = trace.step_count, len(answers)
        return result


if __name__ == "__main__":
    print(measure())
