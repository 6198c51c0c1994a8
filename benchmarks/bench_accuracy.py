# SPDX-License-Identifier: MIT
"""What NeuralDBG says of programs with known truth: detection, type, cause, layer, step.

    python benchmarks/bench_accuracy.py [PROGRAM_OR_FOLDER ...] [--jobs 2] [--save] [--twins]
    python benchmarks/bench_accuracy.py --public PYTHON --save

Each faulty program runs once; what was recorded is explained twice, by core alone and with the
engine. `scoring.py` says what each column means. The programs of zoo/held_out, which nobody who
writes rules reads, are shown apart from the others, the `tuned` ones. `--twins` runs the fixed
forms and the healthy programs too and adds the column `quiet` (bench_quiet.py measures it alone).
`--public` scores the published neuraldbg 1.x instead, under an interpreter that has it.
`--recorded` explains what corpus.py recorded instead of running it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import programs_of
import record
import runner
import scoring

EDITIONS = ("engine", "core", "public")
SHOWN = 3
"""Answers of a program that are kept in the results: as many as the scorer looks at."""


def arguments(description: str) -> argparse.ArgumentParser:
    """Return the options that bench_accuracy.py and bench_quiet.py share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the rows here, whatever else is done")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    parser.add_argument("--part", choices=["tuned", "held out"])
    parser.add_argument("--public", metavar="PYTHON", help="interpreter with neuraldbg 1.x")
    parser.add_argument(
        "--recorded",
        type=Path,
        nargs="+",
        metavar="FOLDER",
        help="run nothing: explain what corpus.py recorded",
    )
    parser.add_argument("--quiet-lines", action="store_true", help="print the totals only")
    return parser


def named(args: argparse.Namespace) -> list[str]:
    """Return the programs that the arguments name: all of the zoo where they name none.

    The zoo's injected faults (healthy programs with an operator's fault) are among them.
    """
    names: list[str] = programs_of.expand(args.paths)
    injected = Path(__file__).parent / "zoo" / "injected.toml"
    if not args.paths and injected.is_file():
        names += programs_of.expand([str(injected)])
    return [n for n in names if args.part in {None, programs_of.part(family(n))}]


def family(name: str) -> str:
    """Return the stem of a program's file, whatever fault or operator is named with it."""
    return Path(Path(name.partition("::")[0]).name.rpartition("@")[2]).stem


def tool(args: argparse.Namespace) -> dict[str, Any]:
    """Return what `run_all` needs to know of the tool that the arguments name."""
    if args.recorded:
        return {"tool": "recorded"}
    if not args.public:
        return {"tool": "ours"}
    # Not resolved: the interpreter of an environment is a link to one that lacks its packages.
    return {"tool": "public", "python": str(Path(args.public).absolute())}


def recorded(folder: Path, forms: tuple[str, ...]) -> list[str]:
    """Return the recorded runs of a folder that have one of these forms; healthy ones are fixed."""
    jobs = []
    for path in sorted(folder.resolve().glob("*.json")):
        variant = json.loads(path.read_text(encoding="utf-8"))["variant"]
        if variant in forms or (variant == "healthy" and "fixed" in forms):
            jobs.append(f"{variant}:{path}")
    return jobs


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its part and, for each edition, its marks and its first answers."""
    row["part"] = programs_of.part(row.get("family", row["program"]))
    row["said"] = {e: len(said) for e, said in row.get("answers", {}).items()}
    if row["form"] == "faulty":
        row["marks"] = {e: scoring.marks(row["truth"], a) for e, a in row["answers"].items()}
    else:
        row["marks"] = {e: {"quiet": not said} for e, said in row["answers"].items()}
    row["answers"] = {e: said[:SHOWN] for e, said in row["answers"].items()}
    row["truth"].pop("layers")  # read by the scorer above; long, and in the program's file
    return row


def show(row: dict[str, Any]) -> None:
    """Print one program's line, and under it what an edition said where it was wrong."""
    cause = ",".join(row["truth"]["causes"]) if row["form"] == "faulty" else f"({row['form']})"
    print(f"{row['program'][:44]:44s} {cause[:44]:44s} {row['cpu_s']:5.1f} s {row['raised']}")
    for edition, marks in row["marks"].items():
        wrong = [c for c, right in marks.items() if not right and c not in scoring.CAUSELESS]
        if wrong:
            print(f"   {edition:6s} NO: {' '.join(wrong)}")
            for h in row["answers"][edition]:
                what = f"{h['failure_type']}/{h['cause']} {h['layer']!r} @{h['onset']}"
                print(f"          {h['confidence']:.2f} {what}")
    for problem in row.get("problems", []):
        print(f"   PROBLEM: {problem[:200]}")
    sys.stdout.flush()


def run(args: argparse.Namespace, names: list[str], forms: tuple[str, ...]) -> dict[str, Any]:
    """Run the programs, print as they come, and return what a measurement holds."""
    start = time.monotonic()
    jobs = [f"{form}:{Path(n).resolve()}" for n in names for form in forms]
    if args.recorded:
        jobs = [job for folder in args.recorded for job in recorded(folder, forms)]
    rows, skipped, crashed = [], {}, []
    for row in runner.run_all(jobs=jobs, workers=args.jobs, **tool(args)):
        if row.get("crashed"):
            crashed.append({"program": row["program"], "form": row["form"]})
            print(f"{row['program']}: its process ended or hung", flush=True)
        elif "skipped" in row:
            if row["skipped"] != "healthy":
                skipped[row["program"]] = row["skipped"]
        else:
            rows.append(judged(row))
            if not args.quiet_lines:
                show(row)
    rows.sort(key=lambda row: (row["program"], row["form"]))
    wall = round(time.monotonic() - start)
    return {
        "rows": rows,
        "skipped": skipped,
        "crashed": crashed,
        "wall_s": wall,
        "jobs": args.jobs,
    }


def totals(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """Print `column right/counted`, by edition and part."""
    for edition in EDITIONS:
        for part in ("tuned", "held out", "all"):
            picked = [
                row["marks"][edition]
                for row in rows
                if edition in row["marks"] and part in {row["part"], "all"}
            ]
            if picked:
                found = scoring.counts(picked, columns)
                line = "  ".join(f"{c} {right}/{of}" for c, (right, of) in found.items())
                print(f"{edition:6s} {part:8s} {line}")


def version_of(python: str | None) -> dict[str, str]:
    """Return the version of the published release under an interpreter, for the record."""
    if python is None:
        return {}
    import subprocess

    ask = "from importlib.metadata import version; print(version('neuraldbg'))"
    answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    return {"neuraldbg (public)": answer.stdout.strip()}


def main() -> None:
    """Score programs and print the table, by part and in all."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--twins", action="store_true", help="fixed and healthy programs too")
    args = parser.parse_args()
    forms = ("faulty", "fixed") if args.twins else ("faulty",)
    data = run(args, named(args), forms)
    if args.json:
        args.json.write_text(json.dumps(data["rows"], default=str), encoding="utf-8")
    if args.save:
        data["rows"] = [row for row in data["rows"] if row["form"] == "faulty"]
        name = "accuracy-public" if args.public else "accuracy"
        record.save(name, record.command(), data, **version_of(args.public))
    columns = (*scoring.COLUMNS, *scoring.CAUSELESS) if args.public else scoring.COLUMNS
    totals(data["rows"], (*columns, "quiet"))
    print(f"{data['wall_s']} s with {args.jobs} jobs; {len(data['crashed'])} crashed")


if __name__ == "__main__":
    main()
