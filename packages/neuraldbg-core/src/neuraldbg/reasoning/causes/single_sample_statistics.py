# SPDX-License-Identifier: MIT
"""Single-sample statistics: batch normalisation over so few values that they are noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

FEW = 4.0
"""Values per channel up to which a batch's own statistics say nothing. Heuristic: of two values
one is always +1 and the other -1."""
HALF = 0.5
"""Progress beyond which not even two values per channel have done harm."""
APART = 0.5
"""Gap between the means of batches and the running mean, in standard deviations."""


def assess(view: CaseView) -> Assessment | None:
    """Look for batch norms over a few values, far from the running ones, where nothing is learned.

    A NaN born of one sample is told by the operation itself.
    """
    if not view.curve or view.curve.progress > HALF or view.is_broken:
        return None
    for layer in dict.fromkeys(n.layer for n in view.observations.get("normalization", [])):
        notes = [n for n in view.observations["normalization"] if n.layer == layer]
        values = float(np.median([n.figures["values"] for n in notes]))
        gap = float(np.median([n.figures["mean_gap"] for n in notes[-4:]]))
        if values > (2 if view.curve.learned else FEW):
            continue
        if gap < APART or not notes[-1].figures["training"]:
            continue
        step = view.label(0)
        return Assessment(
            cause="single_sample_statistics",
            failure=FailureType.OPTIMIZER_INSTABILITY,
            confidence=0.6,
            description=(
                f"Single-sample statistics in {named(layer)} from step {step}: batch normalisation "
                f"takes its mean and variance from {figure(values)} values per channel, "
                f"{figure(gap)} standard deviations from the running ones."
            ),
            layer=layer,
            onset=step,
            onset_range=(step, step),
            evidence=view.events(types=["optimizer_instability"], state="loss_plateau"),
            chain=(
                link(layer, step, "a few values are normalised by their own mean and variance"),
                link(layer, step, "what told samples apart is gone"),
            ),
            explains=frozenset({"unknown", "labels_unrelated_to_inputs", "lr_too_high"}),
        )
    return None
