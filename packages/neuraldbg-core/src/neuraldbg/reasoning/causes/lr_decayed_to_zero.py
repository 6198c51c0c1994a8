# SPDX-License-Identifier: MIT
"""Learning rate decayed to zero: gone long before the run ended, and the loss stood still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.schedule import early_decay
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.schedule import Decay
    from neuraldbg.reasoning.view import CaseView

DONE = 0.85
"""Progress from which a run that stands still is done, not starved."""
ABOVE = 3.0
"""Last loss over the lowest while the lr lived. Heuristic: noise and overfitting stay below it."""
STILL = 0.02
"""Sum of update / weight RMS from then on: the weights stay where they are."""


def is_starved(view: CaseView, decay: Decay) -> bool:
    """Whether the loss fell while the lr lived, stood still after, and was not done."""
    curve = view.curve
    if not curve or curve.is_broken or curve.is_diverged:
        return False
    if _stands(view, decay) and (_is_left_above(view, decay) or not curve.learned):
        return True
    if curve.progress > DONE:
        return False
    return decay.gain_after < 0.3 * max(decay.gain_before, 0.0) + 1e-5


def _is_left_above(view: CaseView, decay: Decay) -> bool:
    """Whether the loss rose before the lr was gone and never came back near what it had been.

    A second stage began on a harder task, and the lr did not live to learn it.
    """
    curve = view.curve
    at = int(np.searchsorted(curve.steps, view.label(decay.gone)))
    best = float(np.nanmin(curve.smooth[: max(at, 1)]))
    return not curve.is_signed and 0 < ABOVE * best < curve.end


def _stands(view: CaseView, decay: Decay) -> bool:
    """Whether all updates after the lr was gone, added up, cannot have moved the weights."""
    if not np.isfinite(view.step_size).any():
        return False
    return bool(np.nansum(view.step_size[decay.gone :]) < STILL)


def assess(view: CaseView) -> Assessment | None:
    """Compare the loss before and after the lr was gone."""
    decay = early_decay(view)
    if decay is None or not is_starved(view, decay):
        return None
    step, end = view.label(decay.gone), view.label(len(view.steps) - 1)
    smooth = decay.shape == "smooth"
    return Assessment(
        cause="lr_decayed_to_zero",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.85 if smooth else 0.6,
        description=(
            f"Learning rate decayed to zero by step {step}: it fell from {figure(decay.peak)} to "
            f"{figure(decay.last)}, and the loss stood at {figure(view.curve.end)} until the end "
            f"at step {end}."
        ),
        onset=step,
        onset_range=(view.label(decay.first_drop), step),
        evidence=view.events(types=["optimizer_instability"], state="loss_plateau"),
        chain=(
            link(None, view.label(decay.first_drop), "the lr starts to fall"),
            link(None, step, "less than a tenth of the lr is left, and the loss stands still"),
        ),
        explains=frozenset({"unknown", "lr_too_low", "labels_unrelated_to_inputs"}),
    )
