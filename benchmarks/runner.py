# SPDX-License-Identifier: MIT
"""Runs programs of the zoo under a tool and prints what the tool says, one JSON line each.

    python benchmarks/runner.py TOOL FORM:PROGRAM ...      FORM is `faulty` or `fixed`

TOOL is `ours` (this repository's NeuralDBG: one run, explained by core alone and with the
engine), `recorded` (the same for runs that corpus.py recorded: PROGRAM is then the file of a run's
truth), `public` (the published neuraldbg 1.x, with whose interpreter this file is then started),
`nothing` (the program alone: its losses), `story` (ours, with the text of its answer) or `bare`
(the same without `torch.compile` and `DataParallel`). `run_all` starts such processes and reads
their lines; a program that crashes or hangs its process costs its own row and no other.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import programs_of  # noqa: E402

PER_PROCESS = 8
"""Programs per process: torch loads once for them, and what one leaves behind ends with them."""
LONGEST_S = 600.0
"""A program that says nothing for this long has hung."""


class Nothing:
    """What `watch(model)` returns under the tool `nothing`: it keeps the losses."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._by_name: dict[str, list[float]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def record_loss(self, value: Any, name: str = "loss") -> None:
        self._by_name.setdefault(name, []).append(float(value))

    @property
    def losses(self) -> list[float]:
        """The main loss, as a trace has it: `loss`, else the first recorded one."""
        return self._by_name.get("loss") or next(iter(self._by_name.values()), [])

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def run(tool: str, job: str) -> dict[str, Any]:
    """Run one program under a tool; its answers by reasoner, most probable first."""
    form, _, name = job.partition(":")
    if tool == "recorded":
        return recorded(Path(name))
    import torch

    torch.set_num_threads(1)
    program = programs_of.load(name)
    row: dict[str, Any] = {
        "program": program.name,
        "family": program.family,
        "form": form,
        "truth": dict(program.TRUTH),
        "architecture": programs_of.architecture(name),
    }
    if program.skip:
        return row | {"skipped": program.skip}
    if not program.TRUTH["causes"]:
        row["form"] = "healthy"
        if form == "faulty":
            return row | {"skipped": "healthy"}
    make, answers = TOOLS[tool]()
    seen: list[Any] = []

    def watch(model: Any, **options: Any) -> Any:
        seen.append(make(model, **options))
        return seen[-1]

    breaks = _graph_breaks()
    start = time.process_time()
    row["raised"] = ""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program.train(watch, **({"fixed": True} if row["form"] == "fixed" else {}))
        except Exception as error:  # noqa: BLE001 - the program's own failure is part of the truth
            row["raised"] = type(error).__name__
    row["cpu_s"] = round(time.process_time() - start, 2)
    row["graph_breaks"] = _graph_breaks() - breaks
    return row | answers(seen)


def _graph_breaks() -> int:
    """Return how often torch.compile broke a graph in this process so far."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return sum(dynamo.counters["graph_break"].values()) if dynamo else 0


def recorded(path: Path) -> dict[str, Any]:
    """Return the row of a run that corpus.py recorded: both editions' answers, nothing is run."""
    from neuraldbg.trace import open_trace

    kept = json.loads(path.read_text(encoding="utf-8"))
    _, answers = ours()
    error = kept["error"].strip().splitlines()
    row = {
        "program": kept["program"],
        "family": kept["family"],
        "form": kept["variant"],
        "truth": kept["truth"],
        "architecture": programs_of.architecture(f"{kept['family']}.py"),
        "raised": error[-1].partition(":")[0] if error else "",
        "cpu_s": 0.0,
    }
    sessions = [SimpleNamespace(trace=open_trace(path.parent / name)) for name in kept["traces"]]
    return row | answers(sessions)


def ours() -> tuple[Any, Any]:
    """Return this repository's session, and both editions' answers about what it recorded."""
    from neuraldbg import NeuralDbg
    from neuraldbg.inquiry import Inquiry
    from neuraldbg.plugins import PluginHost

    editions = {"core": PluginHost(disabled="engine"), "engine": PluginHost()}

    def answers(seen: list[Any]) -> dict[str, Any]:
        row: dict[str, Any] = {"answers": {}, "explain_ms": {}, "problems": [], "steps": 0}
        for edition, host in editions.items():
            start = time.perf_counter()
            said = [h for s in seen for h in Inquiry(s.trace, host).explain_failure()]
            row["explain_ms"][edition] = round(1e3 * (time.perf_counter() - start), 1)
            said.sort(key=lambda h: -h.confidence)
            row["answers"][edition] = [_answer(h) for h in said]
        for session in seen:
            row["problems"] += [str(w) for w in session.trace.run.warnings]
        return row

    return NeuralDbg, answers


def _answer(hypothesis: Any) -> dict[str, Any]:
    return {
        "failure_type": str(hypothesis.failure_type),
        "cause": hypothesis.cause,
        "layer": hypothesis.layer,
        "onset": hypothesis.onset,
        "confidence": round(hypothesis.confidence, 3),
        "says": str(hypothesis),
    }


def nothing() -> tuple[Any, Any]:
    """Return the stand-in, and the curve that the user would have seen."""
    return Nothing, lambda seen: {"losses": [x for s in seen for x in s.losses]}


def public() -> tuple[Any, Any]:
    """Return the published release's session, stepped as its documentation says."""
    from public_release import Session, answers

    return Session, lambda seen: {"answers": {"public": answers(seen)}}


def story() -> tuple[Any, Any]:
    """Return our session, with the marks and the text of its answers, for a page to tell."""
    make, answers = ours()

    def tell(seen: list[Any]) -> dict[str, Any]:
        row = answers(seen)
        best = max(seen, key=lambda s: max((h.confidence for h in s.explain_failure()), default=0))
        return row | {"summary": best.summary(), "losses": list(best.trace.loss.values)}

    return make, tell


def bare() -> tuple[Any, Any]:
    """Return the same, where nothing in this process compiles or wraps a model any more."""
    import torch

    class Unwrapped(torch.nn.DataParallel):
        def __new__(cls, module: Any, *_: Any, **__: Any) -> Any:
            return module

    torch.compile, torch.nn.DataParallel = lambda model, **_: model, Unwrapped
    return story()


TOOLS = {"story": story, "bare": bare, "ours": ours, "nothing": nothing, "public": public}


# -- the other side of the pipe --------------------------------------------------------------


def run_all(
    tool: str, jobs: list[str], *, workers: int = 2, python: str = sys.executable
) -> Iterator[dict[str, Any]]:
    """Yield a row for each job, as they come; one that killed its process says so in `crashed`."""
    chunks = [jobs[i : i + PER_PROCESS] for i in range(0, len(jobs), PER_PROCESS)]
    done: list[dict[str, Any]] = []
    ready = threading.Condition()

    def work(chunk: list[str]) -> None:
        for row in _rows(tool, chunk, python):
            with ready:
                done.append(row)
                ready.notify()

    with ThreadPoolExecutor(workers) as pool:
        for chunk in chunks:
            pool.submit(work, chunk)
        for _ in jobs:
            with ready:
                while not done:
                    ready.wait()
                row = done.pop(0)
            yield row


def _rows(tool: str, chunk: list[str], python: str) -> Iterator[dict[str, Any]]:
    left = list(chunk)
    while left:
        for row in _one_process(tool, left, python):
            left.pop(0)
            yield row
        if left:
            form, _, name = left.pop(0).partition(":")
            yield {"program": Path(name).stem, "job": name, "form": form, "crashed": True}


def _one_process(tool: str, jobs: list[str], python: str) -> Iterator[dict[str, Any]]:
    """Yield the rows that one process prints before it ends, is killed or falls silent."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if tool == "public":
        environment.pop("PYTHONPATH", None)
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [python, str(Path(__file__).resolve()), tool, *jobs],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None  # noqa: S101 - for the type checker
        alarm = threading.Timer(LONGEST_S, process.kill)
        alarm.start()
        try:
            for line in process.stdout:
                alarm.cancel()
                alarm = threading.Timer(LONGEST_S, process.kill)
                alarm.start()
                if line.startswith('{"'):
                    yield json.loads(line)
        finally:
            alarm.cancel()
            process.kill()


def main() -> None:
    """Run the jobs named on the command line, one line each."""
    tool, *jobs = sys.argv[1:]
    for job in jobs:
        print(json.dumps(run(tool, job), default=str), flush=True)


if __name__ == "__main__":
    main()
