# SPDX-License-Identifier: MIT
"""Outlier batch: one batch far outside the band of all others, and the loss shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, argument, figure, link
from neuraldbg.reasoning.inputs import departures
from neuraldbg.reasoning.symptoms import SETBACK, lasting_jump, setback
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

EXTREME_Z = 50.0
EXTREME_JUMP = 30.0
"""From here on a batch is told although the loss came back: the optimizer's moments did not."""
WARM_UP = 8
"""Batches before there is a band."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a lone batch outside the band on whose step the loss jumps and stays up."""
    curve = view.curve
    if len(view.run.models) > 1:
        return None
    for departure in departures(view):
        if departure.is_lasting or abs(departure.z) < 12 or departure.row < WARM_UP:
            continue
        step = view.label(departure.row)
        index = int(np.searchsorted(curve.steps, step))
        if index >= len(curve):
            continue
        usual = curve.level(index - 20, index)
        value = curve.values[index]
        jump = float(value / abs(usual)) if np.isfinite(value) and usual else float("inf")
        stays = lasting_jump(view, index)
        extreme = abs(departure.z) > EXTREME_Z and jump > EXTREME_JUMP
        if jump < 3 or not (extreme or _hurts(view, index, stays)):
            continue
        name = argument(view.run.inputs[departure.column].name)
        stat = departure.stat.name.lower()
        return Assessment(
            cause="outlier_batch",
            failure=FailureType.DATA_ANOMALY,
            confidence=0.85,
            description=(
                f"Outlier batch at step {step}: {stat} of {name} is "
                f"{figure(departure.after)} where {figure(departure.before)} is usual, and the "
                f"loss jumps to {figure(jump)} times its level."
            ),
            onset=step,
            onset_range=(step, step),
            evidence=view.events(types=["data_anomaly", "optimizer_instability"], until=step + 1),
            chain=(
                link(None, step, "one batch lies far outside the band of all others"),
                link(None, step, "its gradient moves the weights by more than all before"),
            ),
            explains=frozenset(
                {
                    "lr_too_high",
                    "missing_gradient_clipping",
                    "unknown",
                    "dying_relu",
                    "stale_second_moment",
                    "target_outlier",
                }
            ),
        )
    return None


def _hurts(view: CaseView, index: int, stays: float) -> bool:
    """Whether the loss stayed up after the batch, the run broke, or it never learned."""
    if view.is_broken or not view.curve.learned:
        return True
    return stays > 1.3 and setback(view, index) > SETBACK
