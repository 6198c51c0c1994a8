# SPDX-License-Identifier: MIT
"""Unscaled reward: returns far above 1 make the value loss drown the policy's gradient."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.objective import ABSOLUTE, SQUARED
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

DONE = 0.75
"""Progress of the whole loss, which is the value head's: the policy may still stand still."""
DROWNED = 0.95
"""The same where the value head is still far off at the end, so that the shared layers still follow
it alone. Heuristic."""
LARGE = 10.0
"""RMS of the returns that a value head is trained on; its loss is a hundred times a policy's."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a policy loss beside a value loss over large targets, in a run that fails."""
    curve = view.curve
    if not view.objective.is_policy or not curve or curve.progress > _enough(view):
        return None
    sizes = [
        math.hypot(note.figures["target_mean"], math.sqrt(note.figures["target_variance"]))
        for note in view.observations.get("loss_function", [])
        if note.words.get("name") in (*SQUARED, *ABSOLUTE) and "target_variance" in note.figures
    ]
    # Hand-written squares keep no targets: then the whole first loss tells their size.
    largest = max(sizes, default=math.sqrt(max(curve.first, 0.0)))
    if largest < LARGE:
        return None
    step = view.label(0)
    return Assessment(
        cause="unscaled_reward",
        failure=FailureType.EXPLODING_GRADIENTS,
        confidence=0.75,
        description=(
            f"Rewards not scaled from step {step}: the value head is trained on returns of size "
            f"{figure(largest)}, so its loss is about {figure(largest**2)} and its gradient drowns "
            "the policy's."
        ),
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["gradient_health_transition", "optimizer_instability"]),
        chain=(
            link(None, step, f"returns of size {figure(largest)} enter the value loss"),
            link(None, step, "the shared layers follow the value loss alone"),
        ),
        explains=frozenset(
            {"lr_too_high", "unnormalized_target", "policy_collapse", "unknown", "target_outlier"}
        ),
    )


def _enough(view: CaseView) -> float:
    """Return the progress from which the value head has learned its returns, whatever their size.

    Where its error is still a hundred times what drowns a policy, and nothing clips the gradient,
    a fall of the loss by three quarters is the way to there, not an arrival.
    """
    is_far = view.curve.end > (10 * LARGE) ** 2 and not view.is_clipped
    return DROWNED if is_far else DONE
