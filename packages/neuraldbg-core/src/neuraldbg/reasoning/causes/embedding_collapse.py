# SPDX-License-Identifier: MIT
"""Embedding collapse: different samples end at (nearly) the same vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import chance_loss
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

SPREAD = 0.05
"""Standard deviation between samples over RMS: 5 % of the vector's length tells samples apart."""
FALL = 5.0


def assess(view: CaseView) -> Assessment | None:
    """Look for an output of several units that lost its spread, under a loss of its own kind."""
    if not view.curve or not len(view.steps) or len(view.run.models) > 1 or view.is_broken:
        return None
    if chance_loss(view) is not None or _is_regression(view):
        return None
    spread = view.activation(ActivationStat.SPREAD)
    found = []
    for layer in view.flow.outputs:
        if layer.units == 1:
            continue
        values = spread[:, view.flow.row[layer.path]]
        first, last = float(view.early(values)), float(view.late(values))
        if np.isfinite(first) and last < SPREAD and last * FALL < first:
            found.append((layer, first, last, values))
    if not found:
        return None
    layer, first, last, values = found[0]
    rows = np.flatnonzero(values < max(2 * SPREAD, 0.3 * first))
    step = view.label(int(rows[0])) if len(rows) else view.label(0)
    return Assessment(
        cause="embedding_collapse",
        failure=FailureType.REPRESENTATION_COLLAPSE,
        confidence=0.8,
        description=(
            f"Embedding collapse in {named(layer.path)} by step {step}: the spread between samples "
            f"fell from {figure(first)} to {figure(last)} of the vectors' length, so all samples "
            "look the same."
        ),
        layer=layer.path,
        onset=step,
        onset_range=(view.label(0), step),
        evidence=view.events(types=["representation_collapse"]),
        chain=(link(layer.path, step, "outputs of different samples become one vector"),),
        explains=frozenset({"labels_unrelated_to_inputs", "unknown", "lr_too_high"}),
    )


def _is_regression(view: CaseView) -> bool:
    """Whether the main loss compares outputs with given targets element by element."""
    names = [n.words.get("name", "").lower() for n in view.observations.get("loss_function", [])]
    return any(word in name for name in names for word in ("mse", "l1", "huber", "binary_cross"))
