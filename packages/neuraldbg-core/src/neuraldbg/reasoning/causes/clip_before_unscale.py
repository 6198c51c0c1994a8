# SPDX-License-Identifier: MIT
"""Clip before unscale: the clip acts on gradients that still carry the loss scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.loop import lasting_from, loop_fault, rows_with, since

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Report a loop that (nearly) always clips scaled gradients."""
    if not len(view.steps):
        return None
    row = lasting_from(rows_with(view, "is_clipped_scaled"))
    if row is None:
        return None
    return loop_fault(
        view,
        "clip_before_unscale",
        since(view, row, "clipped_scaled"),
        "gradients are clipped while still multiplied by the loss scale, so little is left of them",
        0.9,
    )
