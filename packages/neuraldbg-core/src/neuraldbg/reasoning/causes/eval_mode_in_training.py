# SPDX-License-Identifier: MIT
"""Eval mode in training: dropout and batch statistics are off on training steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.loop import lasting_from, loop_fault, since

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView

FROM_START = 2
"""Up to this row it may be meant: a frozen feature extractor is often trained on in eval mode."""


def assess(view: CaseView) -> Assessment | None:
    """Report a run whose training forwards are in eval mode from some step on."""
    if not len(view.steps):
        return None
    forwards = view.ledger("forwards")
    in_eval = (view.ledger("eval_mode_forwards") >= forwards) & (forwards > 0)
    row = lasting_from(in_eval, 0.95)
    if row is None or (row <= FROM_START and view.curve.learned):
        return None
    return loop_fault(
        view,
        "eval_mode_in_training",
        since(view, row, "eval_mode_in_training"),
        "training steps run in eval mode, so dropout and batch statistics are off",
        0.85 if row > FROM_START else 0.7,
    )
