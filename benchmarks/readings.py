# SPDX-License-Identifier: MIT
"""What inference reads of recorded programs: findings and opinions by trace, kept beside them.

Reading a trace takes a quarter of a second and fitting asks for all of them again and again: a
reading is pickled next to its trace, and made anew when the code that makes it has changed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import scoring

COLUMNS = (*scoring.COLUMNS, "quiet")
MADE_BY = (
    "packages/neuraldbg-core/src/neuraldbg/reasoning",
    "packages/neuraldbg-core/src/neuraldbg/trace",
    "packages/neuraldbg-engine/src/neuraldbg_engine/findings",
    "packages/neuraldbg-engine/src/neuraldbg_engine/timeline.py",
    "packages/neuraldbg-engine/src/neuraldbg_engine/graph",
)


@dataclass(frozen=True)
class Reading:
    """One trace as inference sees it."""

    findings: dict[str, Any]
    assessments: tuple[Any, ...]
    events: tuple[Any, ...]
    heuristic: tuple[Any, ...]
    """What core alone answers."""
    ruled_out: frozenset[str]
    """Causes that the recorded place of a birth contradicts."""

    @property
    def first(self) -> str | None:
        """The cause that core alone puts first."""
        return self.heuristic[0].cause if self.heuristic else None

    @property
    def case(self) -> Any:
        """What a verdict asks of a case."""
        trace = SimpleNamespace(events=self.events)
        return SimpleNamespace(trace=trace, assessments=self.assessments, ruled_out=self.ruled_out)


@dataclass(frozen=True)
class Run:
    """One recorded run of a program: its truth, and a reading per session."""

    program: str
    family: str
    """What it shares its healthy form with: these are left out together."""
    variant: str
    seed: int
    truth: dict[str, Any]
    readings: tuple[Reading, ...]

    @property
    def is_faulty(self) -> bool:
        """Whether a fault is at work."""
        return self.variant == "faulty"


@functools.cache
def stamp() -> str:
    """Return a hash of the code that readings depend on."""
    root = Path(__file__).parent.parent
    parts = hashlib.sha256()
    for name in MADE_BY:
        path = root / name
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path] * path.exists()
        for file in files:
            parts.update(file.read_bytes())
    return parts.hexdigest()[:16]


def read(trace: str) -> Reading:
    """Return the reading of a trace, from its file where it is fresh."""
    kept = Path(trace).with_suffix(".reading")
    mark = (stamp(), Path(trace).stat().st_mtime_ns)
    if kept.exists():
        was, reading = pickle.loads(kept.read_bytes())  # noqa: S301 - our own files
        if was == mark:
            return reading
    from neuraldbg.reasoning import reason
    from neuraldbg.trace import open_trace
    from neuraldbg_engine.findings import Case, all_findings

    opened = open_trace(trace)
    case = Case(opened)
    findings = dict(all_findings(case))
    core = tuple(reason(opened))
    reading = Reading(findings, case.assessments, tuple(opened.events), core, case.ruled_out)
    kept.write_bytes(pickle.dumps((mark, reading)))
    return reading


def runs(folder: Path, jobs: int = 2) -> list[Run]:
    """Return every recorded run of a folder, in order of name."""
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    traces = [str(folder / name) for row in rows for name in row["traces"]]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        made = dict(zip(traces, pool.map(read, traces, chunksize=8), strict=True))
    return [
        Run(
            row["program"],
            row["family"],
            row["variant"],
            row["seed"],
            row["truth"],
            tuple(made[str(folder / name)] for name in row["traces"]),
        )
        for row in rows
    ]


def marks(run: Run, said: list[Any]) -> dict[str, bool]:
    """Return which columns the hypotheses of a run get right, most probable first."""
    if not run.is_faulty:
        return {"quiet": not said}
    answers = [
        {
            "failure_type": str(h.failure_type if hasattr(h, "failure_type") else h.failure),
            "cause": h.cause,
            "layer": h.layer,
            "onset": h.onset,
        }
        for h in said
    ]
    found = scoring.marks(run.truth, answers)
    return {column: found[column] for column in scoring.COLUMNS if column in found}


def totals(rows: list[dict[str, bool]]) -> str:
    """Return `column right/counted` for every column."""
    parts = []
    for column in COLUMNS:
        counted = [row[column] for row in rows if column in row]
        parts.append(f"{column} {sum(counted)}/{len(counted)}")
    return "  ".join(parts)


def core_says(run: Run) -> list[Any]:
    """Return what core alone says of a run, over its sessions."""
    return merged([list(reading.heuristic) for reading in run.readings])


def engine_says(run: Run, numbers: Any, cards: Any = None) -> list[Any]:
    """Return what the engine says of a run with these parameters, over its sessions."""
    from neuraldbg_engine.causes import deck
    from neuraldbg_engine.explain import Verdict

    return merged(
        [
            Verdict(reading.case, reading.findings, cards or deck(), numbers).drafts
            for reading in run.readings
        ]
    )


def merged(answers: list[list[Any]]) -> list[Any]:
    """Return the hypotheses of several sessions, most probable first."""
    return sorted((h for said in answers for h in said), key=lambda h: -h.confidence)
