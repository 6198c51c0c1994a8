# SPDX-License-Identifier: MIT
"""Record programs with known truth as traces: what the engine is fitted and scored on, offline.

    python benchmarks/corpus.py DIR [PROGRAM_OR_FOLDER ...] [--jobs 2] [--seeds 0]

Each program is run under NeuralDBG, faulty and fixed (a healthy one once), with every seed, and
leaves `DIR/PROGRAM.VARIANT.SEED.SESSION.ndbg`, one file per session that it opened, and
`DIR/PROGRAM.VARIANT.SEED.json` with its truth. What is there is not recorded again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import programs_of


class Task(NamedTuple):
    """One run to record."""

    program: str
    """Its name, as `programs_of` takes it."""
    variant: str
    """`faulty`, `fixed` or `healthy`."""
    seed: int
    folder: str

    @property
    def name(self) -> str:
        """Return how its files begin."""
        stem = Path(self.program).name.replace(".py", "").replace("::", "--")
        return f"{stem}.{self.variant}.{self.seed}"


def record(task: Task) -> str:
    """Run one program and write its traces and its truth; return what to print."""
    import torch

    from neuraldbg import NeuralDbg

    torch.set_num_threads(1)
    program, traces, error = programs_of.load(task.program), [], ""

    def watch(model: Any, **options: Any) -> NeuralDbg:
        path = Path(task.folder) / f"{task.name}.{len(traces)}.ndbg"
        path.unlink(missing_ok=True)
        traces.append(path.name)
        return NeuralDbg(model, **(options | {"trace": path}))

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fixed = {"fixed": True} if task.variant == "fixed" else {}
            program.train(watch, seed=task.seed, **fixed)
        except Exception:  # noqa: BLE001 - the program's own failure is part of the truth
            error = traceback.format_exc(limit=-2)
    row = {
        "program": program.name,
        "family": program.family,
        "variant": task.variant,
        "seed": task.seed,
        "truth": program.TRUTH,
        "traces": traces,
        "error": error,
    }
    target = Path(task.folder) / f"{task.name}.json"
    target.write_text(json.dumps(row, indent=1), encoding="utf-8")
    return f"{task.name}: {len(traces)} trace(s) {error.strip().splitlines()[-1:] or ''}"


def attempt(task: Task) -> str:
    """Record a program; one that cannot be recorded is named and left out."""
    try:
        return record(task)
    except Exception:  # noqa: BLE001 - shown
        return f"{task.name}: NOT RECORDED\n{traceback.format_exc()}"


def tasks(names: list[str], folder: Path, seeds: list[int]) -> list[Task]:
    """Return the runs that are not recorded yet, the faulty ones first."""
    wanted = []
    for name in names:
        program = programs_of.load(name)
        if program.skip:
            print(f"{name}: left out, it {program.skip}")
            continue
        variants = ("faulty", "fixed") if program.TRUTH["causes"] else ("healthy",)
        wanted += [Task(name, v, seed, str(folder)) for v in variants for seed in seeds]
    wanted.sort(key=lambda task: task.variant)
    return [task for task in wanted if not (folder / f"{task.name}.json").exists()]


def main() -> None:
    """Record what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    todo = tasks(programs_of.expand(args.paths), args.folder, args.seeds)
    context = multiprocessing.get_context("spawn")
    with context.Pool(args.jobs, maxtasksperchild=8) as pool:
        for line in pool.imap_unordered(attempt, todo):
            print(line, flush=True)


if __name__ == "__main__":
    main()
