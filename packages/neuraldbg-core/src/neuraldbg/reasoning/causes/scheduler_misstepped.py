# SPDX-License-Identifier: MIT
"""Scheduler misstepped: it moves per batch, not per epoch, so the lr is gone at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.causes.lr_decayed_to_zero import is_starved
from neuraldbg.reasoning.schedule import early_decay
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

SHAPES = {"staircase": 0.8, "geometric": 0.75, "swinging": 0.7}
"""Confidence by shape: step and exponential schedules count epochs, a cosine that comes back was
stepped past its end."""
FAST = 0.3
"""Share of the run by which the lr must be gone."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a schedule that was used up within the first part of the run."""
    decay = early_decay(view)
    if decay is None or decay.shape not in SHAPES or decay.gone > FAST * len(view.steps):
        return None
    if decay.shape != "swinging" and not is_starved(view, decay):
        return None
    if decay.shape == "swinging" and view.curve.learned:
        return None
    step = view.label(decay.first_drop)
    return Assessment(
        cause="scheduler_misstepped",
        failure=FailureType.TRAINING_WIRING,
        confidence=SHAPES[decay.shape],
        description=(
            f"Scheduler stepped too often from step {step}: the lr fell from "
            f"{figure(decay.peak)} to a tenth within {view.label(decay.gone)} batches "
            f"({decay.shape}), as if every batch were an epoch."
        ),
        onset=step,
        onset_range=(step, view.label(decay.gone)),
        evidence=view.events(types=["optimizer_instability"], state="loss_plateau"),
        chain=(
            link(None, step, "the scheduler lowers the lr batch by batch"),
            link(None, view.label(decay.gone), "the lr is gone and the loss stands still"),
        ),
        explains=frozenset({"unknown", "lr_too_low", "labels_unrelated_to_inputs"}),
    )
