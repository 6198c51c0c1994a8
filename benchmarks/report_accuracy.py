# SPDX-License-Identifier: MIT
"""The accuracy and quietness sections of docs/benchmarks.md."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import scoring
from tables import NONE, paragraphs, quantile, share, table

EDITION = {
    "engine": "with the engine",
    "core": "core alone",
    "public": "neuraldbg 1.3.2",
}
PARTS = ("tuned", "held out")
LATE = 100
"""A fault that begins at this step or after it begins in the middle of a run."""
Rows = list[dict[str, Any]]


def _marks(rows: Rows, edition: str) -> list[dict[str, bool]]:
    return [row["marks"][edition] for row in rows if edition in row["marks"]]


def _cells(rows: Rows, edition: str, columns: tuple[str, ...]) -> list[str]:
    found = scoring.counts(_marks(rows, edition), columns)
    return [share(*found[column]) for column in columns]


def accuracy(document: dict[str, Any], public: dict[str, Any] | None) -> str:
    """Return the section on what it says of faulty programs."""
    rows, injected = apart(document["data"]["rows"])
    causes = {cause for row in rows for cause in row["truth"]["causes"][:1]}
    head = ("edition", "part", "programs", *scoring.COLUMNS)
    parts = []
    for edition in ("engine", "core"):
        for part in (*PARTS, "all"):
            picked = [row for row in rows if part in {row["part"], "all"}]
            cells = _cells(picked, edition, scoring.COLUMNS)
            parts.append((EDITION[edition], part, len(picked), *cells))
    return paragraphs(
        "## Accuracy",
        f"{len(rows)} faulty programs, {len(causes)} causes, each run once.\n"
        "What was recorded was explained by core alone and again with the engine.\n"
        "`type`: the first answer's failure type is right.\n"
        "`cause@1`, `cause@3`: a right cause is first, or among the first three.\n"
        "`layer`, `step`: the answer with the right cause names a right layer, and a step within "
        "one of the right one; a wrong cause counts as wrong here too.\n"
        "`tuned` programs were read by those who write rules, and misses on them were mended. "
        "`held out` ones (`benchmarks/zoo/held_out/`) were written by somebody who had not seen "
        "the rules; nothing was mended on them: they say what to expect of a new program.",
        table(head, parts),
        _not_run(document),
        "### By architecture",
        _grouped(rows, "architecture", lambda row: row["architecture"]),
        "### By where the fault begins",
        "The first step on which it acts, by its author; wiring faults act from the first one on.",
        _grouped(rows, "fault begins", _begins),
        "### By cause",
        "The cause is the one that the program's author accepts first.",
        _grouped(rows, "cause", lambda row: f"`{row['truth']['causes'][0]}`"),
        _by_operator(injected),
        "### What it got wrong",
        "Every program whose first answer with the engine names a cause that is not accepted.",
        _wrong(rows + injected),
        _beside_public(rows, public),
    )


def apart(rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows of the zoo's own faulty programs, and those of faults put in by operators."""
    return [r for r in rows if "@" not in r["program"]], [r for r in rows if "@" in r["program"]]


def _begins(row: dict[str, Any]) -> str:
    """Return where the fault of a program begins, by the step counted from 0."""
    onset = row["truth"]["onset"]
    if onset is None:
        return "no step is given"
    first = onset[0]
    return "at step 0" if first == 0 else "at steps 1 to 99" if first < LATE else "later"


def _by_operator(rows: Rows) -> str:
    if not rows:
        return ""
    return paragraphs(
        "### By operator",
        f"{len(rows)} healthy programs with a fault put in by an operator that hurts them; they "
        "are counted here only.",
        _grouped(rows, "operator", lambda row: f"`{row['program'].partition('@')[0]}`"),
    )


def left_out(document: dict[str, Any]) -> str:
    """Return the engine's scores on programs that its numbers were not fitted to."""
    rows = document["data"]["rows"]
    faulty = [row for row in rows if row["variant"] == "faulty"]
    learning = [row for row in rows if row["variant"] != "faulty"]
    lines = []
    for edition in ("engine", "core"):
        cells = _cells(faulty, edition, scoring.COLUMNS)
        quiet = _cells(learning, edition, ("quiet",))
        lines.append((EDITION[edition], len(faulty), *cells, *quiet))
    head = ("edition", "faulty runs", *scoring.COLUMNS, "quiet on runs that learn")
    return paragraphs(
        "### Programs left out of the fit",
        "The engine's numbers are fitted to programs of the zoo, so the figures above flatter it.\n"
        "Here every run is judged with numbers fitted without its program: five folds, all forms, "
        "faults and seeds of a program in one.\n"
        "Core's numbers are fitted to nothing.",
        table(head, lines),
    )


def _not_run(document: dict[str, Any]) -> str:
    data, lines = document["data"], []
    for name, why in sorted(data["skipped"].items()):
        lines.append(f"Not run: `{name}` ({why}).")
    lines += [f"Its process ended or hung: `{row['program']}`." for row in data["crashed"]]
    return "\n".join(lines)


def _grouped(rows: Rows, name: str, key: Any) -> str:
    groups: dict[str, Rows] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    columns = ("detected", "type", "cause@1", "cause@3", "layer", "step")
    head = (name, "programs", *columns, "cause@1, core alone")
    lines = [
        (
            group,
            len(groups[group]),
            *_cells(groups[group], "engine", columns),
            *_cells(groups[group], "core", ("cause@1",)),
        )
        for group in sorted(groups, key=str.lower)
    ]
    return table(head, lines)


def _wrong(rows: Rows) -> str:
    lines = []
    for row in rows:
        if row["marks"]["engine"]["cause@1"]:
            continue
        said = row["answers"]["engine"]
        shown = f"`{said[0]['cause']}` ({said[0]['confidence']:.2f})" if said else "nothing"
        accepted = ", ".join(f"`{cause}`" for cause in row["truth"]["causes"])
        lines.append((f"`{row['program']}`", row["part"], accepted, shown))
    return table(("program", "part", "accepted", "first answer"), lines) if lines else "None."


def _beside_public(rows: Rows, public: dict[str, Any] | None) -> str:
    if public is None:
        return ""
    theirs = {row["program"]: row for row in public["data"]["rows"]}
    shared = [row for row in rows if row["program"] in theirs]
    others = [theirs[row["program"]] for row in shared]
    columns = ("detected", "type", *scoring.CAUSELESS, "cause@1", "cause@3")
    lines = [(EDITION[e], *_cells(shared, e, columns)) for e in ("engine", "core")]
    lines.append((EDITION["public"], *_cells(others, "public", columns)))
    return paragraphs(
        "### Beside the published neuraldbg 1.3.2",
        f"The same {len(shared)} programs and scorer, under the release on PyPI in an environment "
        "of its own.\n"
        "Without its unpublished engine that release names no cause, and its `explain_failure` "
        "lists events; its answers here are its failure events, one for each type and layer, "
        "earliest first.\n"
        "`type@3`, `layer of type` and `step of type` ask for type, layer and step among the first "
        "three answers whatever cause they name, so that a tool without causes can score.\n"
        "It speaks up on nearly every run, healthy ones included (see below), so `detected` alone "
        "says little.",
        table(("tool", *columns), lines),
        _not_run(public),
    )


def quietness(document: dict[str, Any], public: dict[str, Any] | None) -> str:
    """Return the section on runs that learn."""
    documents = [("engine", document), ("core", document)]
    documents += [("public", public)] if public else []
    lines = []
    for edition, source in documents:
        for form, name in (("healthy", "healthy programs"), ("fixed", "fixed twins")):
            for part in PARTS:
                rows = [r for r in source["data"]["rows"] if (r["form"], r["part"]) == (form, part)]
                said = [row["said"][edition] for row in rows]
                loud = sum(count > 0 for count in said)
                mean = f"{sum(said) / len(said):.2f}" if said else NONE
                lines.append((EDITION[edition], name, part, len(said), loud, sum(said), mean))
    head = (
        "tool",
        "runs that learn",
        "part",
        "runs",
        "runs with a false alarm",
        "alarms",
        "per run",
    )
    return paragraphs(
        "## Quietness",
        "Healthy programs, and every faulty program with its fault removed: each hypothesis is a "
        "false alarm.\n"
        "Of the published release at most 20 alarms per run are counted.",
        table(head, lines),
        _loud(document),
        _not_run(document),
    )


def _loud(document: dict[str, Any]) -> str:
    lines = []
    for row in document["data"]["rows"]:
        for edition in ("engine", "core"):
            for answer in row["answers"][edition]:
                what = f"`{answer['cause']}`"
                where = answer["layer"] or NONE
                lines.append(
                    (f"`{row['program']}`", row["form"], EDITION[edition], what, where,
                     f"{answer['confidence']:.2f}")
                )  # fmt: skip
    if not lines:
        return "No false alarm of ours."
    return paragraphs(
        "Every one of ours:",
        table(("program", "form", "edition", "cause", "layer", "confidence"), lines),
    )


def time_to_explain(document: dict[str, Any]) -> str:
    """Return the figures of how long the zoo's runs took to explain."""
    lines = []
    for edition in ("engine", "core"):
        times = [row["explain_ms"][edition] for row in document["data"]["rows"]]
        cells = [f"{quantile(times, q):.0f}" for q in (0.5, 0.95, 1.0)]
        lines.append((EDITION[edition], len(times), *cells))
    return table(("edition", "runs of the zoo", "median ms", "95 % under", "longest"), lines)
