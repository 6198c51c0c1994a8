# SPDX-License-Identifier: MIT
"""Time and memory to explain a long, wide trace: 100,000 steps of 200 layers, made without torch.

    python benchmarks/bench_explain.py [--steps 100000] [--layers 200] [--trace FILE] [--check]
                                       [--save]

All gradients, updates and the loss grow from 80 % of the run on. The trace is written to FILE
(a temporary one by default) once; for each edition a fresh process then loads and explains it
`--repeat` times. Reported: wall and CPU seconds of the fastest repeat, how long of it opening took,
and the peak resident set in MB. `--check` fails above 2 s of wall time or 300 MB with the engine.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from neuraldbg.schema.facts import ActivationStat, ParameterStat
from neuraldbg.settings import Settings
from neuraldbg.testing import make_facts, make_run
from neuraldbg.trace import TraceWriter, open_trace

SECONDS, MEGABYTES = 2.0, 300.0
DISABLED = {"engine": "", "core": "engine"}
"""The plugins that are off, by edition."""


def write(path: Path, steps: int, layers: int) -> None:
    """Record a synthetic run that begins to explode at 80 % of its steps."""
    run = make_run(*(f"blocks.{i:03}" for i in range(layers)))
    writer = TraceWriter.open(str(path), run, Settings())
    noise, base = np.random.default_rng(0), make_facts(run, 0)
    for step in range(steps):
        growth = 10 ** max(0.0, 25 * step / steps - 20)  # 1 until 80 %, then up to 1e5
        activation, parameter = base.activation.copy(), base.parameter.copy()
        activation[:, ActivationStat.RMS] *= np.exp(0.05 * noise.normal(size=layers))
        update = np.exp(0.1 * noise.normal(size=layers)) * growth**0.5
        parameter[:, ParameterStat.UPDATE_RMS] *= update
        size = np.exp(0.1 * noise.normal(size=layers)) * growth
        parameter[:, ParameterStat.GRAD_NORM] *= size
        loss = (2 * math.exp(-10 * step / steps) + 0.3) * math.exp(0.05 * noise.normal())
        losses = {"loss": loss * growth**0.8}
        writer.write_step(
            replace(base, step=step, activation=activation, parameter=parameter, losses=losses)
        )
    writer.finish(None)


def measure(path: Path, edition: str, repeat: int) -> dict[str, float]:
    """Load and explain a trace several times; return seconds of the fastest and the peak in MB."""
    from neuraldbg.inquiry import Inquiry
    from neuraldbg.plugins import PluginHost

    host, best = PluginHost(disabled=DISABLED[edition]), {}
    for _ in range(repeat):
        start, cpu = time.perf_counter(), time.process_time()
        trace = open_trace(path)
        rows = len(trace.facts)
        loaded = time.perf_counter()
        found = Inquiry(trace, host).explain_failure()
        end = time.perf_counter()
        now = {
            "seconds": end - start,
            "load_seconds": loaded - start,
            "cpu_seconds": time.process_time() - cpu,
            "rows": rows,
            "hypotheses": len(found),
        }
        best = min(best or now, now, key=lambda one: one["seconds"])
        del trace, found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**best, "peak_mb": peak / 1024}


def by_edition(options: argparse.Namespace) -> dict[str, Any]:
    """Write the trace where there is none, and measure each edition in a process of its own."""
    found: dict[str, Any] = {"steps": options.steps, "layers": options.layers, "editions": {}}
    with tempfile.TemporaryDirectory() as folder:
        path = options.trace or Path(folder) / "long.ndbg"
        if not path.exists():
            write(path, options.steps, options.layers)
        found["file_mb"] = path.stat().st_size / 1e6
        for edition in DISABLED:
            command = [sys.executable, __file__, "--measure", edition, "--trace", str(path)]
            command += ["--repeat", str(options.repeat)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found["editions"][edition] = json.loads(output)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--layers", type=int, default=200)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--measure", choices=list(DISABLED), help="only explain --trace, as JSON")
    parser.add_argument("--check", action="store_true", help="fail above the limits")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.trace, options.measure, options.repeat)))
        return
    found = by_edition(options)
    for edition, figures in found["editions"].items():
        print(f"{edition:>7}", *(f"{name} {value:.3g}" for name, value in figures.items()))
    if options.save:
        import record

        record.save("explain", record.command(), found)
    figures = found["editions"]["engine"]
    if options.check and (figures["seconds"] > SECONDS or figures["peak_mb"] > MEGABYTES):
        sys.exit(f"above {SECONDS} s or {MEGABYTES} MB")


if __name__ == "__main__":
    main()
