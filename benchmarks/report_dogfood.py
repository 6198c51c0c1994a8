# SPDX-License-Identifier: MIT
"""docs/PHASE2_DOGFOODING.md: one scenario per architecture, as it happened."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tables import paragraphs, table

CAUSES = Path(__file__).resolve().parents[1] / "docs" / "causes"
INTRODUCTION = """\
One scenario per architecture: what was injected, what the user would have seen, what NeuralDBG
said, and what it cost.
`python benchmarks/dogfood.py` runs the scenarios and pastes this page together.
The programs stand in `benchmarks/zoo/`, with the same fault and its truth.
Answers are given as they came, wrong ones too.
CPU times are the faster of two runs, of the training process alone, start of torch left out.
These runs are short: NeuralDBG watches the first 64 steps in full, and goes on until that has cost
a quarter of a second, so what it cost here is mostly that; [benchmarks](benchmarks.md) has what it
costs per step after that.
"""
WRAPPERS = {"torch.compile": "`torch.compile`", "DataParallel": "`nn.DataParallel`"}


def page(document: dict[str, Any]) -> str:
    """Return the page."""
    rows = document["data"]["rows"]
    return paragraphs(
        "# Phase 2: dogfooding",
        "<!-- Written by `python benchmarks/dogfood.py`; do not edit. -->",
        INTRODUCTION,
        table(
            ("architecture", "program", "injected", "cause first", "layer", "step"),
            [_overview(row) for row in rows],
        ),
        *(_scenario(row) for row in rows),
    )


def _overview(row: dict[str, Any]) -> tuple[str, ...]:
    marks = row["marks"]["engine"]
    verdicts = [{True: "right", False: "wrong", None: "not asked"}[marks.get(c)]
                for c in ("cause@1", "layer", "step")]  # fmt: skip
    return (row["architecture"], f"`{row['program']}`", _link(row["accepted"][0]), *verdicts)


def _link(cause: str) -> str:
    exists = (CAUSES / f"{cause}.md").is_file()
    return f"[`{cause}`](causes/{cause}.md)" if exists else f"`{cause}`"


def _scenario(row: dict[str, Any]) -> str:
    plain, watched = row["cpu_s"]["plain"], row["cpu_s"]["watched"]
    others = [f"`{cause}`" for cause in row["accepted"][1:]]
    accepted = f" Accepted too: {', '.join(others)}." if others else ""
    return paragraphs(
        f"## {row['architecture']}: `{row['program']}`",
        " ".join(row["text"].split()),
        f"**Injected**: {_link(row['accepted'][0])}.{accepted}\n"
        f"What gives it away: {row['signs']}.",
        "**Without NeuralDBG**, the user sees the loss.",
        _curve(row),
        f"The program ends with `{row['raised']}`." if row["raised"] else "",
        "**NeuralDBG says**:",
        f"```text\n{row['summary'].rstrip()}\n```",
        _without_wrapper(row) if "bare" in row else "",
        f"**It cost** {watched:.1f} s of CPU for {row['steps']} steps instead of {plain:.1f} s, "
        f"and {row['explain_ms']['engine']:.0f} ms to explain."
        + {True: "\nWatched or not, every loss is the same to the last bit.", None: ""}.get(
            row["unchanged"], "\nThe losses are not the same as in the run without NeuralDBG."
        ),
    )


def _without_wrapper(row: dict[str, Any]) -> str:
    wrapper, same = WRAPPERS[row["architecture"]], row["bare"]["same"]
    agree = ", ".join(name for name, is_so in same.items() if is_so) or "nothing"
    differ = ", ".join(name for name, is_so in same.items() if not is_so) or "nothing"
    lines = [
        f"**Without {wrapper}** the same program, fault and all, gets:",
        f"```text\n{row['bare']['says'] or 'nothing'}\n```",
        f"The same as with it: {agree}; not the same: {differ}.",
    ]
    if row["architecture"] == "torch.compile":
        before, after = row["graph_breaks"]
        lines.append(f"Graph breaks: {before} unwatched, {after} watched.")
    return paragraphs(*lines)


def _curve(row: dict[str, Any]) -> str:
    fixed = dict(row["fixed"])
    lines = [(step, _figure(loss), _figure(fixed.get(step))) for step, loss in row["faulty"]]
    return table(("step", "loss", "loss without the fault"), lines)


def _figure(loss: float | None) -> str:
    if loss is None:
        return "-"
    return f"{loss:.4g}" if math.isfinite(loss) else str(loss)
