# SPDX-License-Identifier: MIT
"""Deep without residual: weight layers in series, no skip or norm, gradient geometric in depth."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import gradient_depth
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.reasoning.view import CaseView

DEEP = 10
"""Weight layers in series. Plain nets without norm or skip get hard to train from 12 to 15 on."""
MOST = 0.75
"""Share of the series that equal layers must make up to be what it consists of."""
RATIO = 0.01
"""First / last gradient RMS (or the reverse) that counts as geometric in depth."""


def assess(view: CaseView) -> Assessment | None:
    """Count layers in series and fit the gradient over depth."""
    flow = view.flow
    if view.curve.learned or not view.curve or flow.has_residual or flow.has_normalization:
        return None
    depth = gradient_depth(view)
    if depth is None or len(depth.layers) < DEEP:
        return None
    fades = depth.ratio < RATIO and depth.slope > 0.1
    grows = depth.ratio > 1 / RATIO and depth.slope < -0.1
    if not (fades or grows):
        return None
    step = view.label(0)
    layer = _first_of_stack(depth.layers)
    word = "vanishing" if fades else "explosion"
    failure = FailureType.VANISHING_GRADIENTS if fades else FailureType.EXPLODING_GRADIENTS
    factor = float(np.exp(abs(depth.slope)))
    return Assessment(
        cause="deep_without_residual",
        failure=failure,
        confidence=0.7 + 0.1 * (len(depth.layers) >= 15),
        description=(
            f"Gradient {word} originated in {named(layer)} at step {step}: {len(depth.layers)} "
            "weight layers stand in series without skip or normalisation, and the gradient "
            f"changes by {figure(factor)} per layer, to {figure(depth.ratio)} of the last one's."
        ),
        layer=layer,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["gradient_health_transition"]),
        chain=(
            link(layer, step, "each layer multiplies the gradient by a factor other than 1"),
            link(layer, step, f"after {len(depth.layers)} layers {figure(depth.ratio)} is left"),
        ),
        explains=frozenset({"lr_too_low", "unknown", "labels_unrelated_to_inputs", "dying_relu"}),
    )


def _first_of_stack(layers: Sequence[str]) -> str:
    """Return the first layer of the series; of most layers, where they differ in a number only.

    What leads into a stack of equal layers is not what makes it deep.
    """
    patterns = [re.sub(r"\d+", "*", path) for path in layers]
    pattern, count = Counter(patterns).most_common(1)[0]
    return layers[patterns.index(pattern)] if count >= MOST * len(layers) else layers[0]
