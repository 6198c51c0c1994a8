# SPDX-License-Identifier: LicenseRef-Proprietary
"""Graded facts about a run. `all_findings(case)` is the list of all of them.

A group of findings is one file here; adding one needs its name in `GROUPS` and nothing else.
"""

from __future__ import annotations

import logging
import warnings
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg_engine.findings.case import Case
from neuraldbg_engine.findings.finding import Entry, Finding, entries

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Case", "Entry", "Finding", "all_findings", "registered"]

GROUPS = (
    "structure",
    "loss",
    "curves",
    "schedule",
    "updates",
    "gradients",
    "activations",
    "data",
    "ledger",
    "numerics",
    "collapse",
    "adversaries",
    "optimizer",
    "observed",
    "specialists",
)
"""Files of this package; findings stand in this order, then in that of their file."""

_LOG = logging.getLogger("neuraldbg")


def registered() -> Mapping[str, Entry]:
    """Return every finding by name: in the order of `GROUPS`, then in that of the file."""
    places = {}
    for place, group in enumerate(GROUPS):
        import_module(f"{__name__}.{group}")
        places[f"{__name__}.{group}"] = place
    known = entries()
    ordered = sorted(known, key=lambda name: places.get(known[name].look.__module__, len(places)))
    return {name: known[name] for name in ordered}


def all_findings(case: Case) -> dict[str, Finding]:
    """Return every finding of a case by name, in stable order.

    One that raises is unavailable, and named in the log: the others still count.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # slices that nothing was measured in
        return {name: _one(case, entry) for name, entry in registered().items()}


def _one(case: Case, entry: Entry) -> Finding:
    try:
        answer = entry.look(case)
    except Exception:  # noqa: BLE001 - one bad finding must not silence the others
        _LOG.exception("finding %r could not be looked for and is left out", entry.name)
        answer = None
    if answer is None:
        return Finding(entry.name, None)
    return Finding(
        entry.name, answer.grade, answer.figures, answer.layer, answer.onset, answer.says
    )
