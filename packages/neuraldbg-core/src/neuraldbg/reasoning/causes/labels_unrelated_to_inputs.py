# SPDX-License-Identifier: MIT
"""Labels unrelated to inputs: everything works, yet the loss stays at chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

ENOUGH_STEPS = 100


def assess(view: CaseView) -> Assessment | None:
    """By exclusion: at chance over known classes, with sound gradients and steps."""
    curve = view.curve
    chance = view.objective.ignorant
    if not np.isfinite(chance) or len(curve) < ENOUGH_STEPS or view.is_broken or curve.is_falling:
        return None
    if not 0.95 * chance < curve.end < 1.3 * chance or curve.best < 0.88 * chance:
        return None
    size = float(quiet(np.nanmedian, view.step_size)) if len(view.step_size) else float("nan")
    if not 1e-4 < size < 0.05:
        return None
    step = view.label(0)
    return Assessment(
        cause="labels_unrelated_to_inputs",
        failure=FailureType.OBJECTIVE_MISMATCH,
        confidence=0.4,
        description=(
            f"Labels unrelated to inputs from step {step}: after {len(curve)} steps of sound size "
            f"the loss is {figure(curve.end)}, and a constant answer scores {figure(chance)}."
        ),
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["optimizer_instability"], state="loss_plateau"),
        chain=(link(None, step, "no pattern carries over from one batch to the next"),),
        explains=frozenset({"unknown"}),
    )
