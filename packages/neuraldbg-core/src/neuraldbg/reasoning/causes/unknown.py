# SPDX-License-Identifier: MIT
"""Unknown: something clearly failed and no cause of the vocabulary fits. Say what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.causes import UNKNOWN
from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import departure_row
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

FAR = 10.0
"""Last loss over the lowest before it: an order of magnitude is no noise."""


def assess(view: CaseView) -> Assessment | None:
    """Name symptom, first layer and step of a run that broke or diverged."""
    curve = view.curve
    if view.is_broken and view.broken_step is not None:
        step, layer = view.broken_step, _first_broken(view)
        return Assessment(
            cause=UNKNOWN,
            failure=FailureType.NUMERICAL_ERROR,
            confidence=0.3,
            description=(
                f"Values stopped being finite at step {step}, first seen in {named(layer)}; no "
                "known cause fits the evidence."
            ),
            layer=layer,
            onset=step,
            onset_range=(max(step - 1, 0), step),
            evidence=view.events(types=["numerical_error", "gradient_health_transition"]),
            chain=(link(layer, step, "the first values that are not finite"),),
        )
    if len(view.run.models) > 1 or not curve or curve.is_signed or not curve.is_diverged:
        return None
    if curve.end < FAR * max(min(curve.best, curve.start), 1e-6) or curve.end < 3 * curve.start:
        return None
    row = departure_row(view)
    step = view.label(row) if row is not None else view.label(0)
    return Assessment(
        cause=UNKNOWN,
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.25,
        description=(
            f"The loss diverged from step {step}: from {figure(curve.best)} to {figure(curve.end)}; "
            "no known cause fits the evidence."
        ),
        onset=step,
        onset_range=(max(step - 1, 0), step),
        evidence=view.events(types=["optimizer_instability"]),
        chain=(link(None, step, "the loss leaves its level for good"),),
    )


def _first_broken(view: CaseView) -> str | None:
    bad = view.activation(ActivationStat.NONFINITE) > 0
    rows = np.flatnonzero(bad.any(axis=1))
    if not len(rows):
        return None
    columns = np.flatnonzero(bad[rows[0]])
    layers = [view.run.layers[int(c)] for c in columns]
    return min(layers, key=lambda x: (view.flow.place.get(x.path, 0))).path
