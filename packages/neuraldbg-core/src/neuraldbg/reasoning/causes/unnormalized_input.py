# SPDX-License-Identifier: MIT
"""Unnormalised input: raw values far from order 1 enter a weight layer from the first step on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import BOUNDED, dead_layers, flat_share, output_rms
from neuraldbg.schema.facts import ActivationStat, InputStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

LARGE = 8.0
"""Input RMS. Standardised inputs have 1; one-hot rows less; 8 sigma is no scale of a feature."""
TINY = 0.01
FEATURE_SPREAD = 1e3
"""Largest / smallest standard deviation over features: three orders of magnitude."""
DIVIDED = 1e6
"""The same from which units alone are an odd reason. Heuristic: a square root of float32's range of
exact integers, 2^24, on either side of 1."""
DONE = 0.75
OWN_SIZE = 1.1
"""Loss over the mean square of the outputs, either way. Heuristic: the sample's own error."""


def assess(view: CaseView) -> Assessment | None:
    """Look at what the first weight layers receive, and whether they suffer from it."""
    flow, curve = view.flow, view.curve
    if flow.is_input_normalized or not len(view.steps):
        return None
    scale, entry = _scale(view)
    is_drowned = scale > LARGE and _is_drowned(view)
    if curve.progress > DONE and not is_drowned:
        return None
    spread = _spread(view)
    if entry is None or not (scale > LARGE or scale < TINY or spread > FEATURE_SPREAD):
        return None
    row = view.label(0)
    hurt, layer = _hurt(view, entry)
    if not hurt and is_drowned:
        hurt = (
            "targets are nothing beside the outputs: the loss is their mean square, at the end as "
            "at the start"
        )
    if not hurt and not view.is_failing:
        return None
    confidence = 0.5 + 0.25 * bool(hurt) + 0.1 * (scale > 4 * LARGE)
    if TINY < scale < LARGE:
        confidence -= 0.15
    what = f"RMS {figure(scale)} where about 1 is usual"
    if spread > FEATURE_SPREAD:
        what += f", feature scales {figure(spread)} apart"
    if spread > DIVIDED:
        what += ", as where one was divided by a spread of almost zero"
    then = hurt or ("the loss does not fall" if curve.is_stuck else "what it learns stays poor")
    return Assessment(
        cause="unnormalized_input",
        failure=FailureType.DATA_ANOMALY,
        confidence=confidence,
        description=(
            f"Input not normalised from step {row}: {named(entry)} receives raw values "
            f"({what}), so {then}."
        ),
        layer=layer or entry,
        onset=row,
        onset_range=(row, row),
        evidence=view.events(layers=[entry, layer]),
        chain=(
            link(None, row, f"inputs enter with {what}"),
            link(layer or entry, row, then),
        ),
        explains=EXPLAINED,
    )


EXPLAINED = frozenset(
    {
        "lr_too_high",
        "saturating_activations",
        "dying_relu",
        "init_too_large",
        "missing_gradient_clipping",
        "unnormalized_target",
        "embedding_collapse",
        "labels_unrelated_to_inputs",
        "unknown",
    }
)


def _is_drowned(view: CaseView) -> bool:
    """Whether a squared error is the mean square of the outputs alone, early and late.

    Then its fall from a wild start is no learning: E(o - y)^2 = E(o^2) needs E(y^2) = 2 E(oy), so
    E(y^2) is at most four times the loss, and the fit explains three quarters of it at best.
    """
    objective, curve = view.objective, view.curve
    if not (objective.is_single and objective.is_squared) or not curve:
        return False
    place = np.minimum(np.searchsorted(curve.steps, view.steps), len(curve) - 1)
    loss = np.where(curve.steps[place] == view.steps, curve.values[place], np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = loss / output_rms(view) ** 2
    shares = float(view.early(ratio)), float(view.late(ratio))
    return all(1 / OWN_SIZE < share < OWN_SIZE for share in shares)


def _scale(view: CaseView) -> tuple[float, str | None]:
    """Return (RMS farthest from 1 that an entry layer receives, that layer)."""
    incoming = view.early(view.activation(ActivationStat.INPUT_RMS))
    worst, where = 1.0, None
    for layer in view.flow.entries:
        rms = float(incoming[view.flow.row[layer.path]])
        if not np.isfinite(rms) or rms <= 0:
            continue
        if where is None or abs(np.log(rms)) > abs(np.log(worst)):
            worst, where = rms, layer.path
    return worst, where


def _spread(view: CaseView) -> float:
    spread = view.early(view.inputs(InputStat.FEATURE_SPREAD))
    spread = spread[np.isfinite(spread)]
    return float(spread.max()) if len(spread) else 1.0


def _hurt(view: CaseView, entry: str) -> tuple[str, str | None]:
    """Return what the raw values do to the first activations, and to which layer."""
    for layer in [view.flow.info[entry], *view.flow.between(entry)]:
        if layer.activation in BOUNDED:
            flat = float(view.early(flat_share(view, layer.path)))
            if flat > 0.5:
                return f"{100 * flat:.0f} % of {layer.path!r} is saturated", entry
    for dead in dead_layers(view, 0.9):
        if dead.layer.path == entry or entry in view.flow.ancestors(dead.layer.path):
            return f"the units of {dead.layer.path!r} died", entry
    if view.curve.is_diverged:
        return "the loss diverges", entry
    return "", None
