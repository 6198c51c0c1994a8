# SPDX-License-Identifier: MIT
"""Train mode in eval: evaluation passes run with dropout on and move running statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import figure, named
from neuraldbg.reasoning.loop import loop_fault, since

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.facts import Observation

RARE = 0.3
"""Share of steps before which an evaluation runs. More often it is part of the method: targets,
sampling, a teacher."""

USUAL = 0.8
"""Share of the evaluations that run in train mode throughout. Heuristic: a last one, after the
loop, is often written elsewhere and right; a run that does both all along means it."""


TWICE = 2
"""Times that running statistics were carried off. Heuristic: once may be to adapt them."""


def assess(view: CaseView) -> Assessment | None:
    """Report a run whose passes without gradients are rare, and hardly ever in eval mode."""
    if not len(view.steps) or len(view.run.models) > 1:
        return None
    evals, wrong = view.ledger("eval_forwards"), view.ledger("train_mode_eval_forwards")
    evaluations = int((evals > 0).sum())
    if evaluations > RARE * len(evals):
        return None
    moved = view.observations.get("statistics_moved", [])
    if len(moved) >= TWICE:
        return _moved(view, moved)
    rows = np.flatnonzero((wrong > 0) & (wrong >= evals))
    if not len(rows) or len(rows) < USUAL * evaluations:
        return None
    return loop_fault(
        view,
        "train_mode_in_eval",
        since(view, int(rows[0]), "train_mode_in_eval"),
        f"{int(np.nansum(wrong))} passes without gradients ran in train mode, with dropout on or "
        "running statistics moving",
        0.65,
    )


def _moved(view: CaseView, notes: list[Observation]) -> Assessment:
    """Report passes over other data that carried the running statistics off."""
    worst = max(note.figures.get("deviations", 0.0) for note in notes)
    first = min(notes, key=lambda note: note.step)
    return loop_fault(
        view,
        "train_mode_in_eval",
        first.step,
        f"passes without gradients ran in train mode and moved running means of "
        f"{named(first.layer)} by up to {figure(worst)} standard deviations, {len(notes)} times, "
        "away from what training saw",
        0.8,
    )
