# SPDX-License-Identifier: MIT
"""Target outlier: the targets of one batch lie far outside the rest; inputs and outputs do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import median_mad
from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.symptoms import SETBACK, lasting_jump, output_rms, setback
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

JUMP = 10.0
"""Loss over the median of the steps before."""

BEYOND = 10.0
"""Loss over the squared size of the outputs: what the outputs themselves cannot account for."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a jump of the loss on a step whose outputs were like those before."""
    curve = view.curve
    if not curve or curve.is_signed or not len(view.steps):
        return None
    outputs = output_rms(view)
    for index, z, ratio in curve.jumps:
        value = float(curve.values[index])
        before = curve.values[max(0, index - 3) : index]
        sudden = value > JUMP * float(np.nanmax(np.abs(before), initial=0.0))
        if ratio < JUMP or not sudden or value < 3 * abs(curve.start) or z < 20:
            continue
        row = view.row_at(int(curve.steps[index]))
        past = outputs[max(0, row - 30) : row]
        middle, scale = (float(x) for x in median_mad(past)) if len(past) >= 3 else (np.nan, 0.0)
        if not np.isfinite(middle) or not np.isfinite(outputs[row]):
            continue
        if outputs[row] > 2 * middle + 6 * scale or value < BEYOND * max(outputs[row], 1.0) ** 2:
            return None
        stays = lasting_jump(view, index)
        hurts = stays > 1.3 and setback(view, index) > SETBACK
        if not (hurts or view.is_broken or not curve.learned):
            continue
        step = int(curve.steps[index])
        return Assessment(
            cause="target_outlier",
            failure=FailureType.DATA_ANOMALY,
            confidence=0.85,
            description=(
                f"Target outlier at step {step}: the loss jumps to {figure(value)} "
                f"({figure(ratio)} times its level) while inputs and outputs are as before, so "
                "the targets of this batch lie far outside the rest."
            ),
            onset=step,
            onset_range=(step, step),
            evidence=view.events(
                types=["optimizer_instability", "gradient_health_transition"], until=step + 1
            ),
            chain=(
                link(None, step, "one batch has targets orders outside the rest"),
                link(None, step, "its loss and gradient move the weights by more than all before"),
            ),
            explains=frozenset(
                {
                    "lr_too_high",
                    "missing_gradient_clipping",
                    "unknown",
                    "stale_second_moment",
                    "dying_relu",
                }
            ),
        )
    return None
