# SPDX-License-Identifier: MIT
"""Zero_grad before step: what backward computed is gone when the optimizer steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.loop import lasting_from, loop_fault, rows_with, since
from neuraldbg.schema.facts import ParameterStat

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Report a loop whose steps (nearly) all find their gradients cleared."""
    if not len(view.steps):
        return None
    row = lasting_from(rows_with(view, "is_cleared_before_step"))
    if row is None or (view.curve.learned and not _stands_still(view, row)):
        return None
    return loop_fault(
        view,
        "zero_grad_before_step",
        since(view, row, "cleared_before_step"),
        "gradients are cleared between backward and the optimizer step, so the step does nothing",
        0.9,
    )


def _stands_still(view: CaseView, row: int) -> bool:
    """Whether no weight moves any more from a row on, to the bit.

    A loop that clears gradients early for a reason, as where each is used within the backward, goes
    on learning.
    """
    moved = view.parameter(ParameterStat.UPDATE_RMS)[row:]
    known = moved[np.isfinite(moved)]
    return len(known) > 0 and not known.any()
