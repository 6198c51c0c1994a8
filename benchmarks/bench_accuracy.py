# SPDX-License-Identifier: MIT
"""What NeuralDBG says of programs with known truth: faulty, fixed and healthy.

    python benchmarks/bench_accuracy.py [PROGRAM_OR_FOLDER ...] [--jobs 2] [--json OUT] [--healthy]

Each program is one module with `TRUTH`, `train(watch, fixed=False, seed=0)` and `harmed(result)`;
see benchmarks/zoo/README.md. Two halves, by a hash of the program's name, are shown apart: rules
were looked at on the `tuned` half only; `held out` was scored and not looked into.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import multiprocessing
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COLUMNS = ("detected", "type", "cause@1", "cause@3", "layer", "step", "quiet")


def half(name: str) -> str:
    """Return `tuned` or `held out` for a program's name, always the same."""
    return "tuned" if hashlib.sha256(name.encode()).digest()[0] % 2 else "held out"


def load(path: str) -> Any:
    """Import a program from its file."""
    spec = importlib.util.spec_from_file_location(f"zoo_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        message = f"cannot import {path!r}"
        raise ImportError(message)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def watch_one(path: str, *, fixed: bool, seed: int = 0) -> dict[str, Any]:
    """Run a program under NeuralDBG and return its answers, most probable first."""
    import torch

    from neuraldbg import NeuralDbg

    torch.set_num_threads(1)
    program, seen, error = load(path), [], ""

    def watch(model: Any, **options: Any) -> NeuralDbg:
        seen.append(NeuralDbg(model, **options))
        return seen[-1]

    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program.train(watch, seed=seed, **({"fixed": True} if fixed else {}))
        except Exception:  # noqa: BLE001 - the program's own failure is part of the truth
            error = traceback.format_exc(limit=-2)
    says = [
        {
            "failure_type": str(h.failure_type),
            "cause": h.cause,
            "layer": h.layer,
            "onset": h.onset,
            "confidence": h.confidence,
            "says": str(h),
        }
        for session in seen
        for h in session.explain_failure()
    ]
    says.sort(key=lambda h: -h["confidence"])
    problems = [w for session in seen for w in session.trace.run.warnings]
    seconds = time.perf_counter() - start
    return {"error": error, "says": says, "seconds": seconds, "problems": problems}


def judge(path: str) -> dict[str, Any]:
    """Return one row: which columns a program got right."""
    truth = load(path).TRUTH
    row: dict[str, Any] = {"program": Path(path).stem, "half": half(Path(path).stem)}
    faulty = watch_one(path, fixed=False)
    row["problems"] = faulty["problems"]
    if not truth["causes"]:
        return row | {"quiet": not faulty["says"], "said": faulty}
    said = faulty["says"]
    right = [h for h in said[:3] if h["cause"] in truth["causes"]]
    row["causes"] = truth["causes"]
    row["detected"] = bool(said)
    row["type"] = bool(said) and said[0]["failure_type"] in truth["failures"]
    row["cause@1"] = bool(said) and said[0]["cause"] in truth["causes"]
    row["cause@3"] = bool(right)
    if truth["layers"]:
        row["layer"] = bool(right) and right[0]["layer"] in truth["layers"]
    if truth["onset"] is not None:
        first, last = truth["onset"]
        onset = right[0]["onset"] if right else None
        row["step"] = onset is not None and first - 1 <= onset <= last + 1
    fixed = watch_one(path, fixed=True)
    row["problems"] += fixed["problems"]
    row["quiet"] = not fixed["says"]
    row["said"], row["said_fixed"] = faulty, fixed
    return row


def attempt(path: str) -> dict[str, Any]:
    """Judge a program; a crash of ours is a row of its own."""
    try:
        return judge(path)
    except Exception:  # noqa: BLE001 - shown in the table
        crash = {"error": traceback.format_exc(), "says": []}
        return {
            "program": Path(path).stem,
            "half": half(Path(path).stem),
            "said": crash,
            "quiet": False,
        }


def totals(rows: list[dict[str, Any]]) -> str:
    """Return `column right/counted` for every column."""
    parts = []
    for column in COLUMNS:
        counted = [row[column] for row in rows if column in row]
        parts.append(f"{column} {sum(counted)}/{len(counted)}")
    return "  ".join(parts)


def show(row: dict[str, Any]) -> None:
    """Print one program's line."""
    marks = " ".join(f"{c}={'y' if row[c] else 'NO'}" for c in COLUMNS if c in row)
    print(f"{row['program']:38s} {','.join(row.get('causes', ['(healthy)']))[:44]:44s} {marks}")
    wrong = [c for c in COLUMNS if c in row and not row[c]]
    if wrong:
        for key in ("said", "said_fixed"):
            for h in row.get(key, {}).get("says", [])[:3]:
                what = f"{h['confidence']:.2f} {h['failure_type']}/{h['cause']}"
                print(f"      {key[5:] or 'run'}: {what} {h['layer']!r} @{h['onset']}")
        error = row["said"]["error"].strip().splitlines()
        if error:
            print(f"      raised: {error[-1][:150]}")
    for problem in row.get("problems", []):
        print(f"      PROBLEM: {problem[:200]}")
    sys.stdout.flush()


def main() -> None:
    """Score programs and print the table, by half and in all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", default=[str(HERE / "zoo" / "programs")])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--half", choices=["tuned", "held out"])
    parser.add_argument("--healthy", action="store_true", help="only programs without a fault")
    args = parser.parse_args()
    files: list[str] = []
    for path in map(Path, args.paths):
        files += [str(p) for p in sorted(path.glob("[a-z]*.py"))] if path.is_dir() else [str(path)]
    files = [f for f in files if Path(f).name != "harness.py"]
    if args.half:
        files = [f for f in files if half(Path(f).stem) == args.half]
    if args.healthy:
        files = [f for f in files if Path(f).stem.startswith("healthy")]
    rows = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(args.jobs, maxtasksperchild=8) as pool:
        for row in pool.imap_unordered(attempt, files):
            rows.append(row)
            show(row)
    if args.json:
        args.json.write_text(json.dumps(rows, default=str))
    for part in ("tuned", "held out"):
        print(f"{part:9s} {totals([r for r in rows if r['half'] == part])}")
    print(f"{'all':9s} {totals(rows)}")


if __name__ == "__main__":
    main()
