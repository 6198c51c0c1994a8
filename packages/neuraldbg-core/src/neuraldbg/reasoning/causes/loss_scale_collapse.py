# SPDX-License-Identifier: MIT
"""Loss scale collapse: the scaler halves its scale again and again, and most steps are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.loop import lasting_from
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

HALVINGS = 6
"""Net halvings from its largest value: a scaler that settles makes a few, then grows again."""


def assess(view: CaseView) -> Assessment | None:
    """Follow the loss scale and the skipped steps."""
    if not len(view.steps):
        return None
    scale, skipped = view.ledger("loss_scale"), view.ledger("skipped")
    known = scale[np.isfinite(scale) & (scale > 0)]
    if len(known) < 4:
        return None
    halvings = float(np.log2(known.max() / known[-1]))
    share = float(np.nanmean(skipped[-max(10, len(skipped) // 3) :] > 0))
    if not (known[-1] < 2.0 or (halvings >= HALVINGS and share > 0.5)) or share < 0.2:
        return None
    rows = np.flatnonzero(skipped > 0)
    lasting = lasting_from(skipped > 0, share=0.5)  # a scaler that settles skips at first, too
    step = view.label(lasting if lasting is not None else int(rows[0]) if len(rows) else 0)
    return Assessment(
        cause="loss_scale_collapse",
        failure=FailureType.NUMERICAL_ERROR,
        confidence=0.85,
        description=(
            f"Loss scale collapse from step {step}: the scale fell from "
            f"{figure(float(known.max()))} to {figure(float(known[-1]))} and "
            f"{100 * share:.0f} % of the late steps were skipped: "
            "something is not finite at any scale."
        ),
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["numerical_error", "gradient_health_transition"]),
        chain=(link(None, step, "gradients overflow whatever the scale, so steps are skipped"),),
        explains=frozenset(
            {
                "unknown",
                "lr_too_low",
                "labels_unrelated_to_inputs",
                "half_precision_overflow",
                "fully_masked_attention",
                "exp_overflow",
                "division_by_zero",
            }
        ),
    )
