# SPDX-License-Identifier: MIT
"""Zero_grad before step: what backward computed is gone when the optimizer steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.loop import lasting_from, loop_fault, rows_with, since

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Report a loop whose steps (nearly) all find their gradients cleared."""
    if not len(view.steps) or view.curve.learned:
        return None
    row = lasting_from(rows_with(view, "is_cleared_before_step"))
    if row is None:
        return None
    return loop_fault(
        view,
        "zero_grad_before_step",
        since(view, row, "cleared_before_step"),
        "gradients are cleared between backward and the optimizer step, so the step does nothing",
        0.9,
    )
