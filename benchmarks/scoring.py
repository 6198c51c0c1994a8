# SPDX-License-Identifier: MIT
"""The scorer: answers against truth, the same for every tool.

An answer is a dict with `failure_type`, `cause`, `layer`, `onset`, `confidence`; a list of them
has the most probable first. The columns:

- `detected`: there is an answer;
- `type`: the first answer's failure type is accepted;
- `cause@1`, `cause@3`: an accepted cause is first, or among the first three;
- `layer`, `step`: the first of those three with an accepted cause names an accepted layer, an
  onset within one step of the accepted ones (counted where the truth has a layer, an onset);
- `type@3`, `layer of type`, `step of type`: the same asked of the first three answers of an
  accepted failure type, whatever cause they name. For tools that name no cause.
"""

from __future__ import annotations

from typing import Any

COLUMNS = ("detected", "type", "cause@1", "cause@3", "layer", "step")
CAUSELESS = ("type@3", "layer of type", "step of type")

Answer = dict[str, Any]


def marks(truth: dict[str, Any], answers: list[Answer]) -> dict[str, bool]:
    """Return which columns the answers to a faulty run get right."""
    first = answers[:1]
    caused = [a for a in answers[:3] if a["cause"] in truth["causes"]]
    typed = [a for a in answers[:3] if a["failure_type"] in truth["failures"]]
    row = {
        "detected": bool(answers),
        "type": any(a["failure_type"] in truth["failures"] for a in first),
        "cause@1": any(a["cause"] in truth["causes"] for a in first),
        "cause@3": bool(caused),
        "type@3": bool(typed),
    }
    if truth["layers"]:
        row["layer"] = bool(caused) and caused[0]["layer"] in truth["layers"]
        row["layer of type"] = any(a["layer"] in truth["layers"] for a in typed)
    if truth["onset"] is not None:
        row["step"] = bool(caused) and _is_near(caused[0]["onset"], truth["onset"])
        row["step of type"] = any(_is_near(a["onset"], truth["onset"]) for a in typed)
    return row


def _is_near(onset: int | None, accepted: list[int]) -> bool:
    first, last = accepted
    return onset is not None and first - 1 <= onset <= last + 1


def counts(rows: list[dict[str, bool]], columns: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Return (right, counted) for each column."""
    return {
        column: (sum(row[column] for row in rows if column in row), sum(column in r for r in rows))
        for column in columns
    }
