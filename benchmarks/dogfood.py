# SPDX-License-Identifier: MIT
"""Run one scenario per architecture and write docs/PHASE2_DOGFOODING.md from what happened.

    python benchmarks/dogfood.py [--jobs 2] [--only ARCHITECTURE ...]

Each scenario is a program of the zoo with one fault. It runs unwatched, with the fault and without
it: that is the curve that the user would have seen. It runs once more under NeuralDBG: that is what
the user would have read. Compiled and wrapped models run a last time as they are without that.
"""

from __future__ import annotations

import argparse
import math
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import record
import runner
import scoring

HERE = Path(__file__).parent
SCENARIOS = HERE / "zoo" / "scenarios.toml"
WRAPPED = ("torch.compile", "DataParallel")
"""Architectures whose programs also run with their model as it is."""


def scenarios() -> list[tuple[str, str]]:
    """Return (architecture, program) for each scenario that can run here."""
    import programs_of

    found = []
    for architecture, candidates in tomllib.loads(SCENARIOS.read_text(encoding="utf-8")).items():
        for candidate in candidates:
            file, _, fault = candidate.partition("::")
            for folder in ("programs", "optional"):
                path = HERE / "zoo" / folder / f"{file}.py"
                name = f"{path}::{fault}" if fault else str(path)
                if path.is_file() and not programs_of.load(name).skip:
                    found.append((architecture, name))
                    break
    return found


def signs(cause: str) -> str:
    """Return what the vocabulary says gives a cause away."""
    from neuraldbg.causes import vocabulary

    return vocabulary().cause(cause).signs


def picked(losses: list[float]) -> list[tuple[int, float]]:
    """Return (step, loss) at the ends of a curve and at its quarters."""
    last = len(losses) - 1
    steps = sorted({round(last * part / 4) for part in range(5)}) if losses else []
    return [(step, losses[step]) for step in steps]


def told(summary: str) -> str:
    """Return the headline and the first hypothesis of a summary, in full."""
    head, _, rest = summary.partition("\n\n2. ")
    return head.partition("\n\nFirst seen:")[0] if not rest else head


def by_program(tool: str, jobs: list[str], workers: int) -> dict[tuple[str, str], dict[str, Any]]:
    """Run jobs under a tool; return rows by program and form, of more than one the fastest."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in runner.run_all(tool, jobs, workers=workers):
        key = row["program"], row["form"]
        if not row.get("crashed") and (key not in found or row["cpu_s"] < found[key]["cpu_s"]):
            found[key] = row
    return found


def run(wanted: list[tuple[str, str]], workers: int) -> list[dict[str, Any]]:
    """Run scenarios; return a row for each."""
    import programs_of

    names = [str(Path(name).resolve()) for _, name in wanted]
    wrapped = [name for (kind, _), name in zip(wanted, names, strict=True) if kind in WRAPPED]
    # Twice, side by side: the first run in a process pays for what torch loads and compiles.
    faulty = [f"faulty:{name}" for name in names for _ in range(2)]
    curves = by_program("nothing", faulty + [f"fixed:{name}" for name in names], workers)
    stories = by_program("story", faulty, workers)
    bare = by_program("bare", [f"faulty:{name}" for name in wrapped], workers)
    rows = []
    for architecture, name in wanted:
        title = programs_of.load(name).name
        told_of = title, "faulty"
        if told_of not in stories or told_of not in curves:
            print(f"{title}: its process ended or hung")
            continue
        row = row_of(stories[told_of], curves[told_of], curves.get((title, "fixed"), {}))
        row |= {"architecture": architecture, "text": programs_of.text_of(name)}
        if told_of in bare:
            row["bare"] = twin(stories[told_of], bare[told_of])
        rows.append(row)
        print(f"{architecture:20s} {title:40s} {row['marks']}", flush=True)
    return rows


def row_of(story: dict[str, Any], plain: dict[str, Any], fixed: dict[str, Any]) -> dict[str, Any]:
    """Return what the page tells of a scenario: watched, unwatched, and without its fault."""
    return {
        "program": story["program"],
        "signs": signs(story["truth"]["causes"][0]),
        "accepted": story["truth"]["causes"],
        "steps": len(plain["losses"]),
        "faulty": picked(plain["losses"]),
        "fixed": picked(fixed.get("losses", [])),
        "raised": plain["raised"],
        "summary": told(story["summary"]),
        "marks": {e: scoring.marks(story["truth"], a) for e, a in story["answers"].items()},
        "cpu_s": {"plain": plain["cpu_s"], "watched": story["cpu_s"]},
        "explain_ms": story["explain_ms"],
        "unchanged": is_same(plain["losses"], story["losses"]),
        "graph_breaks": [plain["graph_breaks"], story["graph_breaks"]],
    }


def is_same(plain: list[float], watched: list[float]) -> bool | None:
    """Return whether watching left every loss as it was, None where that cannot be told."""
    if not plain or len(plain) != len(watched):
        return None
    return all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(plain, watched, strict=True)
    )


def twin(story: dict[str, Any], bare: dict[str, Any]) -> dict[str, Any]:
    """Return what a program's first answer is without its wrapper, and what of it is the same."""
    mine, other = (row["answers"]["engine"][:1] or [{}] for row in (story, bare))
    both = [{k: one[0].get(k) for k in ("cause", "layer", "onset")} for one in (mine, other)]
    for one in both:
        one["layer"] = (one["layer"] or "").removeprefix("_orig_mod.").removeprefix("module.")
    return {
        "says": other[0].get("says", ""),
        "same": {k: both[0][k] == both[1][k] for k in both[0]},
    }


def main() -> None:
    """Run, save, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--only", nargs="*", help="architectures; their part of the page is printed, nothing saved"
    )
    args = parser.parse_args()
    wanted = [one for one in scenarios() if not args.only or one[0] in args.only]
    rows = run(wanted, args.jobs)
    import report
    import report_dogfood

    if args.only:
        print(report_dogfood.page({"data": {"rows": rows}}))
        return
    record.save("dogfood", record.command(), {"rows": rows})
    report.write(check=False)


if __name__ == "__main__":
    main()
