# SPDX-License-Identifier: MIT
"""Run one scenario per architecture and write docs/PHASE2_DOGFOODING.md from what happened.

    python benchmarks/dogfood.py [--jobs 2]

Each scenario is a program of the zoo with one fault. It runs unwatched, with the fault and without
it: that is the curve that the user would have seen. It runs once more under NeuralDBG: that is what
the user would have read.
"""

from __future__ import annotations

import argparse
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


def run(workers: int) -> list[dict[str, Any]]:
    """Run the scenarios; return a row for each."""
    import programs_of

    wanted = scenarios()
    names = [str(Path(name).resolve()) for _, name in wanted]
    curves = {}
    jobs = [f"{form}:{name}" for name in names for form in ("faulty", "fixed")]
    for row in runner.run_all("nothing", jobs, workers=workers):
        if not row.get("crashed"):
            curves[row["program"], row["form"]] = row
    rows = []
    watched = {
        row["program"]: row
        for row in runner.run_all("story", [f"faulty:{name}" for name in names], workers=workers)
        if not row.get("crashed")
    }
    for architecture, name in wanted:
        title = programs_of.load(name).name
        story, plain = watched.get(title), curves.get((title, "faulty"))
        if story is None or plain is None:
            print(f"{title}: its process ended or hung")
            continue
        fixed = curves.get((title, "fixed"), {}).get("losses", [])
        rows.append(
            {
                "architecture": architecture,
                "program": title,
                "text": programs_of.text_of(name),
                "signs": signs(story["truth"]["causes"][0]),
                "accepted": story["truth"]["causes"],
                "steps": len(plain["losses"]),
                "faulty": picked(plain["losses"]),
                "fixed": picked(fixed),
                "raised": plain["raised"],
                "summary": told(story["summary"]),
                "marks": {e: scoring.marks(story["truth"], a) for e, a in story["answers"].items()},
                "cpu_s": {"plain": plain["cpu_s"], "watched": story["cpu_s"]},
                "explain_ms": story["explain_ms"],
            }
        )
        print(f"{architecture:20s} {title:40s} {rows[-1]['marks']}", flush=True)
    return rows


def main() -> None:
    """Run, save, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    rows = run(args.jobs)
    record.save("dogfood", record.command(), {"rows": rows})
    import report

    report.write(check=False)


if __name__ == "__main__":
    main()
