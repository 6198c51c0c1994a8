# SPDX-License-Identifier: MIT
"""Resume without optimizer state: trained weights meet empty moments, and are shaken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.causes.adapter_scale_too_high import adapters
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

TRAINED = 0.2
"""First loss over that of the best constant answer: no fresh model starts there."""
LEAP = 3.0
"""Highest of the first losses over the very first."""
SOON = 20
SAME = 1.5
"""Last loss over the very first, up to which nothing was lost for good; where it ends below 0.7 of
it the task was still to be learned."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a run that starts trained and loses much of it within its first updates."""
    finite = view.curve.finite
    if len(finite) < SOON or not view.is_adaptive or view.curve.is_signed or adapters(view):
        return None
    first, ignorant = float(finite[0]), view.objective.ignorant
    if not (first > 0 and (first < TRAINED * ignorant or _comes_back(view, first))):
        return None
    peak = int(np.argmax(finite[:SOON]))
    leap = float(finite[peak] / first)
    if leap < LEAP or view.curve.end < 0.7 * first:
        return None
    step, worst = view.label(0), int(view.curve.steps[peak])
    return Assessment(
        cause="resume_without_optimizer_state",
        failure=FailureType.TRAINING_WIRING,
        confidence=0.75,
        description=(
            f"Resumed without optimizer state at step {step}: the run starts trained (loss "
            f"{figure(first)}{_beside(ignorant)}), the optimizer's moments start empty, and by "
            f"step {worst} the loss had leapt to {figure(leap)} times its start."
        ),
        onset=step,
        onset_range=(step, worst),
        evidence=view.events(types=["optimizer_instability", "wiring_fault"]),
        chain=(
            link(None, step, "moments start at zero under trained weights"),
            link(None, worst, "the first steps are as long as those of a new run"),
        ),
        explains=frozenset({"unknown", "lr_too_high", "missing_warmup", "catastrophic_forgetting"}),
    )


def _comes_back(view: CaseView, first: float) -> bool:
    """Whether weights that came trained end where they began: they knew this very task."""
    return "pretrained" in view.observations and view.curve.end < SAME * first


def _beside(ignorant: float) -> str:
    return f", a constant answer scores {figure(ignorant)}" if np.isfinite(ignorant) else ""
