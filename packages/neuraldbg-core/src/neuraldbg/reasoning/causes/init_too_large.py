# SPDX-License-Identifier: MIT
"""Initialisation too large: weights start far above what their fan-in bears."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import (
    BOUNDED,
    chance_loss,
    flat_share,
    initial_scales,
    output_rms,
)
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

LARGE = 2.2
"""Times He's scale, sqrt(2 / fan_in), the largest of the usual ones."""


def assess(view: CaseView) -> Assessment | None:
    """Compare initial weights with usual scales, and look for what too large ones do at step 0."""
    curve = view.curve
    if not curve or not len(view.steps):
        return None
    scales = [s for s in initial_scales(view) if s.large > LARGE]
    if not scales:
        return None
    first = scales[0]
    chance = chance_loss(view)
    output = float(output_rms(view)[0])
    effects = []
    if chance is not None and curve.first > 3 * chance:
        effects.append(f"the first loss is {figure(curve.first)} where chance is {figure(chance)}")
    if np.isfinite(output) and output > 10:
        effects.append(f"outputs start at RMS {figure(output)}")
    saturated = [
        layer.path
        for layer in view.flow.executed
        if layer.activation in BOUNDED and float(view.early(flat_share(view, layer.path))) > 0.4
    ]
    if saturated:
        effects.append(f"{saturated[0]!r} starts saturated")
    poor = chance is not None and curve.first > 3 * chance and curve.end > 0.5 * chance
    if not effects or not (view.is_failing or poor):
        return None
    step = view.label(0)
    failure = FailureType.OPTIMIZER_INSTABILITY
    if saturated:
        failure = FailureType.SATURATED_ACTIVATIONS
    elif curve.is_diverged:
        failure = FailureType.EXPLODING_GRADIENTS
    return Assessment(
        cause="init_too_large",
        failure=failure,
        confidence=0.6 + 0.1 * (len(effects) > 1) + 0.1 * (first.large > 4) + 0.1 * poor,
        description=(
            f"Initialisation too large in {named(first.layer)} at step {step}: its weights start "
            f"at RMS {figure(first.rms)}, {figure(first.large)} times the largest usual scale; "
            f"{'; '.join(effects)}."
        ),
        layer=first.layer,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(until=step + 5),
        chain=(
            link(first.layer, step, f"weights start {figure(first.large)} times too large"),
            link(None, step, "; ".join(effects)),
        ),
        explains=frozenset(
            {
                "lr_too_high",
                "saturating_activations",
                "dying_relu",
                "deep_without_residual",
                "missing_gradient_clipping",
                "missing_warmup",
                "residual_scale_growth",
                "unknown",
                "unnormalized_target",
            }
        ),
    )
