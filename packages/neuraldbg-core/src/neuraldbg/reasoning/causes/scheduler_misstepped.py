# SPDX-License-Identifier: MIT
"""Scheduler misstepped: it moves per batch, not per epoch, so the lr is gone at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.causes.lr_decayed_to_zero import DONE, is_starved
from neuraldbg.reasoning.schedule import early_decay
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

SHAPES = {"staircase": 0.8, "geometric": 0.75, "swinging": 0.7}
"""Confidence by shape: step and exponential schedules count epochs, a cosine that comes back was
stepped past its end."""
FAST = 0.3
"""Share of the run by which the lr must be gone."""


REACHED = 0.2
"""Share of the schedule's own peak that the lr must have reached by the end of the run."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a schedule that was used up within the first part of the run."""
    unreached = _unreached_peak(view)
    if unreached is not None:
        return unreached
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
        failure=FailureType.OPTIMIZER_INSTABILITY,
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


def _unreached_peak(view: CaseView) -> Assessment | None:
    """Report a one-cycle schedule whose peak the run never came near: stepped too rarely."""
    peaks = [o.options.get("max_lr") for o in view.run.optimizers]
    planned = max((float(p) for p in peaks if isinstance(p, int | float)), default=0.0)
    reached = float(quiet(np.nanmax, view.lr)) if len(view.lr) else float("nan")
    if not reached < REACHED * planned or not view.curve or view.curve.progress > DONE:
        return None
    step = view.label(0)
    return Assessment(
        cause="scheduler_misstepped",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.85,
        description=(
            f"Scheduler stepped too rarely from step {step}: its cycle was planned to peak at lr "
            f"{figure(planned)}, but in {view.trace.step_count} steps the lr never exceeded "
            f"{figure(reached)}, as if every epoch were a batch."
        ),
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["optimizer_instability"], state="loss_plateau"),
        chain=(
            link(None, step, "the scheduler moves once an epoch where its unit is the batch"),
            link(None, step, "the lr stays at the start of its warmup, and the loss hardly falls"),
        ),
        explains=frozenset({"unknown", "lr_too_low", "labels_unrelated_to_inputs"}),
    )
