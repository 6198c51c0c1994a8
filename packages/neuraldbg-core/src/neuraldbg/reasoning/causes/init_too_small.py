# SPDX-License-Identifier: MIT
"""Initialisation too small: signals shrink layer by layer until nothing is left to learn from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import initial_scales
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

SMALL = 0.4
"""Times torch's own default, the smallest of the usual scales."""


def assess(view: CaseView) -> Assessment | None:
    """Compare initial weights with usual scales, and look for signals that fade with depth."""
    curve = view.curve
    if not curve or not len(view.steps) or curve.learned or view.is_broken:
        return None
    scales = initial_scales(view)
    small = [s for s in scales if s.small < SMALL]
    if len(small) < max(2, len(scales) // 2):
        return None
    incoming = view.early(view.activation(ActivationStat.INPUT_RMS))
    outgoing = view.early(view.activation(ActivationStat.RMS))
    rows = [view.flow.row[s.layer] for s in small]
    with np.errstate(invalid="ignore", divide="ignore"):
        gain = outgoing[rows] / incoming[rows]
    gain = gain[np.isfinite(gain)]
    if view.flow.has_normalization and not (len(gain) and float(np.median(gain)) < 0.05):
        return None
    first = small[0]
    total = float(np.prod(gain[gain > 0])) if len(gain) else float("nan")
    if np.isfinite(total) and total > 0.05:
        return None
    step = view.label(0)
    return Assessment(
        cause="init_too_small",
        failure=FailureType.VANISHING_GRADIENTS,
        confidence=0.75 + 0.15 * (np.isfinite(total) and total < 1e-3),
        description=(
            f"Gradient vanishing originated in {named(first.layer)} at step {step}: weights of "
            f"{len(small)} layers start at {figure(first.small)} times torch's default, so the "
            f"signal shrinks to {figure(total)} of its size on the way to the output."
        ),
        layer=first.layer,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["gradient_health_transition", "representation_collapse"]),
        chain=(
            link(first.layer, step, "weights start far too small"),
            link(None, step, "outputs shrink layer by layer, and gradients with them"),
        ),
        explains=frozenset(
            {
                "lr_too_low",
                "saturating_activations",
                "deep_without_residual",
                "unknown",
                "labels_unrelated_to_inputs",
                "dying_relu",
                "embedding_collapse",
                "recurrent_vanishing",
                "oversmoothing",
            }
        ),
    )
