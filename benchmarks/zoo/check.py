# SPDX-License-Identifier: MIT
"""Prove of every program of the zoo that its fault hurts and that removing it helps.

    python benchmarks/zoo/check.py [PROGRAM_OR_FOLDER ...] [--save] [--seeds 0 1 2] [--jobs 2]

NeuralDBG takes no part: `watch` is a stand-in that records nothing. A pair passes where the faulty
run shows its harm (or raises) and the fixed one neither, on every seed; a healthy program where
nothing is harmed and it learned. Exit status 1 where any does not.

`--save` keeps each program's result in benchmarks/results/self-check.json as it comes, so that a
run which was cut short goes on where it ended: what passed there, from the same source and over
the same seeds, is not run again (`--again` runs it). docs/benchmarks.md shows what stands there.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import multiprocessing
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import record
from pairs import Program, expand, load

MEASUREMENT = "self-check"
LONGEST_S = 12.0
"""CPU seconds of one run that the zoo allows: a benchmark that nobody waits for is not run.
Heuristic: programs are written for about ten; a busy machine stretches CPU time by a fifth."""


class Silent:
    """What `watch(model)` returns here: a session that does nothing."""

    step = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept what NeuralDbg accepts."""

    def __enter__(self) -> Self:
        """Enter the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the block; exceptions pass."""

    def record_loss(self, value: Any, name: str = "loss") -> None:
        """Take a loss and drop it."""

    def record_metric(self, name: str, value: Any) -> None:
        """Take a metric and drop it."""

    def step_iteration(self) -> None:
        """Count nothing."""


def run_once(program: Program, *, fixed: bool, seed: int, severity: float = 1.0) -> dict[str, Any]:
    """Run one form of a program on one seed: harm, whether it learned, error, CPU seconds."""
    import torch

    torch.set_num_threads(1)
    start = time.process_time()
    row: dict[str, Any] = {"fixed": fixed, "seed": seed, "error": ""}
    row |= {"harmed": True, "learned": True}
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = program.train(Silent, fixed=fixed, seed=seed, severity=severity)
            row["harmed"] = bool(program.harmed(result))
            row["learned"] = bool(result.get("learned", True))
            row["loss"] = tail(result.get("loss", ()))
        except Exception as error:  # noqa: BLE001 - a crash is one of the ways in which a fault hurts
            row["error"] = f"{type(error).__name__}: {str(error)[:160]}"
    row["seconds"] = round(time.process_time() - start, 2)
    return row


def tail(losses: Any) -> float | None:
    """Return the mean of the last tenth of a loss curve, for the eye."""
    last = [float(x) for x in losses][-max(1, len(losses) // 10) :] if len(losses) else []
    return round(sum(last) / len(last), 5) if last else None


def verdict(program: Program, runs: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with a program's runs, one sentence each; empty where it passes."""
    wrong = []
    for run in runs:
        where = f"{'fixed' if run['fixed'] else 'run'}, seed {run['seed']}"
        sound = run["fixed"] or not program.TRUTH["causes"]
        if sound and run["error"]:
            wrong.append(f"{where}: raised {run['error']}")
        elif sound and run["harmed"]:
            wrong.append(f"{where}: harmed without a fault")
        elif sound and not run["learned"]:
            wrong.append(f"{where}: did not learn")
        elif not sound and not run["harmed"]:
            wrong.append(f"{where}: the fault does not hurt")
        if run["seconds"] > LONGEST_S:
            wrong.append(f"{where}: took {run['seconds']} CPU seconds, allowed {LONGEST_S}")
    return wrong


def check(job: tuple[str, tuple[int, ...], float]) -> dict[str, Any]:
    """Run a program's forms over the seeds and judge them."""
    name, seeds, severity = job
    program = load(name)
    row: dict[str, Any] = {"program": program.name, "causes": program.TRUTH["causes"], "runs": []}
    row |= {"source": source(name), "seeds": list(seeds), "severity": severity}
    if program.skip:
        return row | {"skipped": program.skip, "wrong": []}
    forms = (False, True) if program.TRUTH["causes"] else (False,)
    for seed in seeds:
        for fixed in forms:
            row["runs"].append(run_once(program, fixed=fixed, seed=seed, severity=severity))
    return row | {"wrong": verdict(program, row["runs"])}


def source(name: str) -> str:
    """Return a short digest of the files that make a program: its own, and its operator's."""
    operator, _, path = name.partition("::")[0].rpartition("@")
    files = [Path(path)]
    if operator:
        from inject import HERE, parts

        files = [parts(name)[1], HERE / "operators" / f"{parts(name)[0]}.py"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def kept(names: list[str], seeds: list[int], severity: float) -> dict[str, dict[str, Any]]:
    """Return the saved rows that still hold, by name: passed, of this source and these seeds."""
    document = record.load(MEASUREMENT) or {"data": {"rows": []}}
    saved = {row["program"]: row for row in document["data"]["rows"]}
    asked = {"seeds": seeds, "severity": severity, "wrong": []}
    found = {}
    for name in names:
        row = saved.get(Path(name).name.replace(".py", ""), {})
        wanted = asked | {"source": source(name)}
        if "skipped" not in row and all(row.get(key) == value for key, value in wanted.items()):
            found[name] = row
    return found


def save(row: dict[str, Any], *, only: set[str] | None = None) -> None:
    """Put one program's row into the saved results; drop those of files not in `only`.

    What another environment, which has a program's library, has found is not given up here.
    """
    document = record.load(MEASUREMENT) or {"data": {"rows": []}}
    rows = {old["program"]: old for old in document["data"]["rows"]}
    if "skipped" not in row:
        rows.pop(stem(row["program"]), None)  # skipped where its library was missing
        rows[row["program"]] = row
    elif not any(stem(name) == row["program"] for name in rows):
        rows[row["program"]] = row
    whole = [rows[name] for name in sorted(rows) if only is None or stem(name) in only]
    record.save(MEASUREMENT, "python benchmarks/zoo/check.py --save --again", {"rows": whole})


def stem(name: str) -> str:
    """Return the name of a program's file, without folder, ending and fault."""
    return Path(name.partition("::")[0]).name.removesuffix(".py")


def show(row: dict[str, Any]) -> None:
    """Print one program's line, and what is wrong with it."""
    if "skipped" in row:
        print(f"{row['program']:46s} skipped: {row['skipped']}", flush=True)
        return
    slowest = max(run["seconds"] for run in row["runs"])
    cause = (row["causes"] or ["(healthy)"])[0]
    print(
        f"{row['program']:46s} {cause:28s} {'FAIL' if row['wrong'] else 'ok':4s} {slowest:5.1f} s"
    )
    for line in row["wrong"]:
        print(f"      {line}")
    sys.stdout.flush()


def main() -> int:
    """Check programs and print the table; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    parser.add_argument("--again", action="store_true", help="run what has passed, too")
    args = parser.parse_args()
    names = expand(args.paths)
    done = kept(names, args.seeds, args.severity) if args.save and not args.again else {}
    rows = list(done.values())
    for row in rows:
        show(row)
    jobs = [(name, tuple(args.seeds), args.severity) for name in names if name not in done]
    whole = None if args.paths else {stem(name) for name in names}
    with multiprocessing.get_context("spawn").Pool(args.jobs, maxtasksperchild=16) as pool:
        for row in pool.imap_unordered(check, jobs):
            rows.append(row)
            show(row)
            if args.save:
                save(row, only=whole)
    if args.json:
        args.json.write_text(json.dumps(rows, default=str), encoding="utf-8")
    return totals(rows)


def totals(rows: list[dict[str, Any]]) -> int:
    """Print how many passed; return 1 where any did not, else 0."""
    failed = [row["program"] for row in rows if row["wrong"]]
    pairs = [row for row in rows if row["causes"]]
    skipped = [row for row in rows if "skipped" in row]
    print(
        f"{len(pairs)} pairs, {len(rows) - len(pairs) - len(skipped)} healthy programs, "
        f"{len(skipped)} skipped; {len(failed)} failed {' '.join(failed)}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
