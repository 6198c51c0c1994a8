# SPDX-License-Identifier: MIT
"""Value divergence: a model chases targets that it computes itself, and both grow without bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.symptoms import is_own_target, output_rms
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

GROWTH = 8.0
"""Last over first output RMS."""


def assess(view: CaseView) -> Assessment | None:
    """Look for outputs that grow along with a loss whose targets come from the same model."""
    curve = view.curve
    if not curve or not is_own_target(view) or curve.is_signed:
        return None
    outputs = output_rms(view)
    first, last = float(view.early(outputs)), float(view.late(outputs))
    if not (np.isfinite(first) and first > 0) or not (last > GROWTH * first or view.is_broken):
        return None
    grown = curve.end / max(curve.start, 1e-12)
    if not (grown > 3 or curve.is_broken):
        return None
    rows = np.flatnonzero(outputs > 2 * max(first, 1e-12))
    onset = view.label(int(rows[0])) if len(rows) else view.label(0)
    return Assessment(
        cause="value_divergence",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.85,
        description=(
            f"Value divergence from step {onset}: the targets come from the network that is being "
            f"trained, its outputs grew from {figure(first)} to {figure(last)}, and the loss by a "
            f"factor of {figure(grown)}."
        ),
        onset=min(onset, view.label(min(20, len(view.steps) - 1))),
        onset_range=(view.label(0), onset),
        evidence=view.events(types=["optimizer_instability", "gradient_health_transition"]),
        chain=(
            link(None, view.label(0), "targets are computed with the network that is trained"),
            link(None, onset, "each update raises the targets it chases"),
        ),
        explains=frozenset(
            {
                "lr_too_high",
                "missing_gradient_clipping",
                "unknown",
                "unnormalized_target",
                "unnormalized_input",
            }
        ),
    )
