# SPDX-License-Identifier: MIT
"""Missing optimizer step: backward runs, nothing ever steps, weights stay bit-identical."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.loop import FEW, loop_fault, working
from neuraldbg.schema.facts import ParameterStat

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Report a loop with backward passes, no optimizer step and weights that do not move."""
    if not len(view.steps) or working(view).sum() < FEW:
        return None
    if np.nansum(view.ledger("steps")) > 0 or np.nansum(view.ledger("skipped")) > 0:
        return _stopped(view)
    weights = view.parameter(ParameterStat.WEIGHT_RMS)
    known = weights[:, ~np.isnan(weights).all(axis=0)]
    if known.size and bool((np.nanmax(known, axis=0) != np.nanmin(known, axis=0)).any()):
        return None
    notes = view.observations.get("no_optimizer_step", [])
    unmoved = any(note.figures.get("unmoved") for note in notes)
    if "weights_moved" in view.observations or not (known.size or unmoved or not _moves(view)):
        return None
    return loop_fault(
        view,
        "missing_optimizer_step",
        view.label(0),
        f"{int(working(view).sum())} backward passes ran and no optimizer ever stepped",
        0.9 if known.size or unmoved else 0.6,
    )


def _stopped(view: CaseView) -> Assessment | None:
    """Report a loop that went on with losses and backward passes after its last step."""
    notes = view.observations.get("optimizer_stopped", [])
    if not notes:
        return None
    return loop_fault(
        view,
        "missing_optimizer_step",
        notes[0].step,
        f"{notes[0].figures['backwards']:.0f} backward passes ran after the optimizer's last step",
        0.9,
    )


def _moves(view: CaseView) -> bool:
    """Whether the loss tells that weights move where they were not measured.

    A loop that updates them by hand has no optimizer to hook, and its loss changes beyond noise.
    """
    curve = view.curve
    moved = abs(curve.start - curve.end)
    return bool(moved > 3 * curve.noise / np.sqrt(curve.width) + 1e-6 * abs(curve.start))
