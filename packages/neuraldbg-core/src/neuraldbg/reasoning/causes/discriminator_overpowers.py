# SPDX-License-Identifier: MIT
"""Discriminator overpowers: it is certain of real and made up, and the generator starves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.adversary import roles
from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Compare the judge's scores and both sides' gradients, first against last."""
    pair = roles(view)
    if pair is None:
        return None
    generator, judge = pair
    heads = [x for x in view.flow.executed if x.model == judge]
    scores = view.activation(ActivationStat.RMS)[:, view.flow.row[heads[-1].path]]
    weighted = [x for x in heads if x.path in view.flow.matrices]
    if weighted:
        scores = view.activation(ActivationStat.RMS)[:, view.flow.row[weighted[-1].path]]
    certain = float(view.late(scores))
    judge_gradient = _gradient(view, judge)
    fed = _gradient(view, generator)
    with np.errstate(invalid="ignore", divide="ignore"):
        fall = float(view.late(fed) / view.early(fed))
        judge_fall = float(view.late(judge_gradient) / view.early(judge_gradient))
    if not np.isfinite(certain) or certain < 5.0 or not (judge_fall < 0.2):
        return None
    starved = np.isfinite(fall) and fall < 0.05
    climbs = any(
        curve and not curve.is_signed and curve.end > 3 * max(curve.start, 0.1)
        for curve in view.curves.values()
    )
    if not (starved or climbs):
        return None
    rows = np.flatnonzero(scores > 5.0)
    step = view.label(int(rows[0])) if len(rows) else view.label(0)
    layer = next((x.path for x in view.flow.executed if x.model == generator), None)
    return Assessment(
        cause="discriminator_overpowers",
        failure=FailureType.VANISHING_GRADIENTS if starved else FailureType.REPRESENTATION_COLLAPSE,
        confidence=0.75,
        description=(
            f"Discriminator overpowers the generator by step {step}: {judge!r} scores samples with "
            f"certainty (logits of {figure(certain)}), and {named(layer)} gets "
            f"{figure(fall)} of its early gradient."
        ),
        layer=layer,
        onset=step,
        onset_range=(view.label(0), step),
        evidence=view.events(types=["gradient_health_transition", "activation_regime_shift"]),
        chain=(
            link(
                weighted[-1].path if weighted else None,
                step,
                "real and made up are told apart with certainty",
            ),
            link(layer, step, "the generator's gradient vanishes, or its loss climbs"),
        ),
        explains=frozenset({"unknown", "mode_collapse", "saturating_activations"}),
    )


def _gradient(view: CaseView, model: str) -> np.ndarray:
    rows = [
        i
        for i, p in enumerate(view.run.parameters)
        if p.name.startswith(f"{model}.") and len(p.shape) > 1
    ]
    rms = view.gradient_rms[:, rows]
    stepped = ~np.isnan(rms).all(axis=1)
    return np.where(stepped, np.sqrt(np.nansum(rms**2, axis=1)), np.nan)
