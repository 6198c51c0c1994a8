# SPDX-License-Identifier: MIT
"""Initialisation too small: signals shrink layer by layer until nothing is left to learn from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import initial_scales
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

FALL = 1e-3
"""Gradient before the layers that joined over what it was: they pass next to nothing on."""
TINY = 0.05
"""Times torch's default: what passes is the biases, and the signal is gone whatever its size."""
SMALL = 0.4
"""Times torch's own default, the smallest of the usual scales."""


def assess(view: CaseView) -> Assessment | None:
    """Compare initial weights with usual scales, and look for signals that fade with depth."""
    curve = view.curve
    if not curve or not len(view.steps) or curve.learned or view.is_broken:
        return None
    joined = _joined(view)
    if joined is not None:
        return joined
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
    tiny = float(np.median([s.small for s in small])) < TINY and not view.flow.has_normalization
    is_lost = tiny or _signal(view, small[0].layer, small[-1].layer) < FALL
    if np.isfinite(total) and total > 0.05 and not is_lost:
        return None
    step = view.label(0)
    return Assessment(
        cause="init_too_small",
        failure=FailureType.VANISHING_GRADIENTS,
        confidence=0.75 + 0.15 * (np.isfinite(total) and total < 1e-3),
        description=(
            f"Gradient vanishing originated in {named(first.layer)} at step {step}: weights of "
            f"{len(small)} layers start at {figure(first.small)} times torch's default, so "
            + (
                "little but their biases reaches the output."
                if total > 0.05
                else f"the signal shrinks to {figure(total)} of its size on the way to the output."
            )
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


def _signal(view: CaseView, first: str, last: str) -> float:
    """Return what is left, at one layer, of what told samples apart at another; NaN: not known.

    Biases keep the size of what passes, and say nothing of the samples.
    """
    spread = view.early(view.activation(ActivationStat.SPREAD))
    varying = spread * view.early(view.activation(ActivationStat.RMS))
    begins, ends = (float(varying[view.flow.row[path]]) for path in (first, last))
    return ends / begins if begins > 0 else float("nan")


def _joined(view: CaseView) -> Assessment | None:
    """Look for layers that run from some step on only, start far too small, and cut the others off.

    A network that grows while it trains hands its whole signal to what is new.
    """
    calls = np.nan_to_num(view.activation(ActivationStat.CALLS)) > 0
    late: dict[int, list[tuple[str, float]]] = {}
    for layer in view.run.layers:
        rows = np.flatnonzero(calls[:, view.flow.row[layer.path]])
        for row in view.flow.matrices.get(layer.path, []) if len(rows) and rows[0] > 0 else []:
            info = view.run.parameters[row]
            scale = info.initial_rms * np.sqrt(3 * max(int(np.prod(info.shape[1:])), 1))
            if scale < SMALL / 10:
                late.setdefault(int(rows[0]), []).append((layer.path, float(scale)))
    for row, new in sorted(late.items()):
        fallen = _fallen(view, row)
        if fallen is None:
            continue
        path, scale = new[0]
        step = view.label(row)
        return Assessment(
            cause="init_too_small",
            failure=FailureType.VANISHING_GRADIENTS,
            confidence=0.85,
            description=(
                f"Gradient vanishing originated in {named(path)} at step {step}: it runs from "
                f"that step on with weights of {figure(scale)} times torch's default, and the "
                f"gradient of {fallen[0]!r} fell to {figure(fallen[1])} of what it was."
            ),
            layer=path,
            onset=step,
            onset_range=(max(step - 1, 0), step),
            evidence=view.events(types=["gradient_health_transition"], state="vanishing"),
            chain=(
                link(path, step, "a layer that joined passes on next to nothing"),
                link(fallen[0], step, f"{figure(fallen[1])} of its gradient is left"),
            ),
            explains=frozenset({"embedding_collapse", "unknown", "labels_unrelated_to_inputs"}),
        )
    return None


def _fallen(view: CaseView, row: int) -> tuple[str, float] | None:
    """Return the first older layer whose gradient fell at a row for good, and what is left."""
    for layer in view.flow.weighted:
        rms = view.layer_gradient(layer.path)
        before = float(quiet(np.nanmedian, rms[max(0, row - 20) : row]))
        after = float(quiet(np.nanmedian, rms[row:]))
        if before > 0 and after < FALL * before:
            return layer.path, after / before
    return None
