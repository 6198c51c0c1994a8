# SPDX-License-Identifier: MIT
"""Stale second moment: Adam's v lags behind a gradient that grew, and one step is far too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import lasting_jump
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import OptimizerStat, ParameterStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

RMS_EVENT = 2.3
"""RMS of grad / sqrt(v) that precedes spikes by 1 to 8 steps (Wortsman et al. 2023)."""
LOOK_BACK = 8
SLOW_BETA2 = 0.99
"""Below this the second moment forgets fast enough."""


def assess(view: CaseView) -> Assessment | None:
    """Look just before a lasting spike for a tensor whose second moment was out of date."""
    ratio = view.parameter(ParameterStat.SECOND_MOMENT_RATIO)
    beta2 = view.optimizer(OptimizerStat.BETA2)
    if not ratio.size or not np.isfinite(ratio).any() or not (np.nanmax(beta2) >= SLOW_BETA2):
        return None
    curve = view.curve
    for index, z, jump in curve.jumps:
        if index < 20 or jump < 1.5 or (lasting_jump(view, index) < 1.15 and curve.learned):
            continue
        row = view.row_at(int(curve.steps[index]))
        window = ratio[max(0, row - LOOK_BACK) : row]
        usual = float(quiet(np.nanmedian, ratio[max(0, row - 60) : max(1, row - LOOK_BACK)]))
        if not np.isfinite(window).any():
            continue
        peak = np.unravel_index(int(np.nanargmax(window)), window.shape)
        value = float(window[peak])
        if value < RMS_EVENT or value < 2 * usual:
            continue
        step = view.label(max(0, row - LOOK_BACK) + int(peak[0]))
        parameter = view.run.parameters[int(peak[1])]
        return Assessment(
            cause="stale_second_moment",
            failure=FailureType.OPTIMIZER_INSTABILITY,
            confidence=0.6 + 0.15 * (z > 20) + 0.1 * (value > 4),
            description=(
                f"Stale second moment at step {step}: in {named(parameter.layer)} the gradient was "
                f"{figure(value)} times what Adam's second moment (beta2 {np.nanmax(beta2):g}) "
                f"knew, and the loss spiked at step {int(curve.steps[index])}."
            ),
            layer=parameter.layer,
            onset=step,
            onset_range=(step, int(curve.steps[index])),
            evidence=view.events(types=["optimizer_instability"], state="loss_spike"),
            chain=(
                link(parameter.layer, step, "the gradient outgrows the second moment's memory"),
                link(
                    None, int(curve.steps[index]), "one step is far too long, and the loss spikes"
                ),
            ),
            explains=frozenset({"missing_gradient_clipping", "unknown"}),
        )
    return None
