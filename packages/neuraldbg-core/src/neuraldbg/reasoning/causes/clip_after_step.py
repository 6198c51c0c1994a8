# SPDX-License-Identifier: MIT
"""Clip after step: gradients are clipped when the optimizer has already used them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.loop import lasting_from, loop_fault, rows_with, since

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Report a loop that clips only between the step and the next clearing."""
    if not len(view.steps):
        return None
    row = lasting_from(rows_with(view, "is_clipped_after_step") & ~rows_with(view, "clips"))
    if row is None:
        return None
    return loop_fault(
        view,
        "clip_after_step",
        since(view, row, "clipped_after_step"),
        "gradients are clipped only after the optimizer has used them, so nothing is clipped",
        0.9,
    )
