# SPDX-License-Identifier: MIT
"""Learning rate too low: over the whole run the weights hardly moved, though gradients agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import ParameterStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

SHORT_PATH = 0.05
"""Sum over the run of update / weight RMS: the most that the weights can have moved, as a share of
their size. Learning a task from scratch takes moves of order 1."""
ENOUGH_STEPS = 30
CUT = 100.0
"""Gradient norm over the limit of the clipping from which the limit, not the lr, sets the step.
Heuristic: two orders; usual runs are clipped by less than ten."""


def assess(view: CaseView) -> Assessment | None:
    """Add up how far the weights went."""
    curve = view.curve
    if not curve or len(view.steps) < ENOUGH_STEPS or curve.progress > 0.2 or view.is_broken:
        return None
    if _is_zero(view):
        return _zero(view)
    per_step = quiet(np.nanmean, view.update_ratio, axis=0)
    per_step = per_step[per_step > 0]
    if not len(per_step) or curve.is_fitted:
        return None
    length = float(np.median(per_step)) * float(view.trace.step_count)
    if length > SHORT_PATH or float(np.median(per_step)) > 2e-4:
        return None
    gradient = float(quiet(np.nanmedian, view.gradient_total))
    lr = view.lr
    high, low = float(quiet(np.nanmax, lr)), float(quiet(np.nanmin, lr))
    decayed = low < 0.02 * high and np.nanargmin(lr) > np.nanargmax(lr)
    if decayed or not np.isfinite(gradient) or gradient < view.gone:
        return None
    agree = float(
        quiet(np.nanmedian, view.parameter(ParameterStat.GRAD_COSINE)[:, view.matrix_rows])
    )
    confidence = 0.6 + 0.2 * (length < SHORT_PATH / 3) + (0.1 if agree > 0.1 else 0.0)
    if _is_cut_short(view):
        confidence *= 0.5
    return Assessment(
        cause="lr_too_low",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=confidence,
        description=(
            f"Learning rate too low from step {view.label(0)}: with lr {figure(high)} the weights "
            f"moved by at most {100 * length:.2g} % of their size in {len(curve)} steps, so the "
            f"loss stayed at {figure(curve.end)} (start {figure(curve.start)})."
        ),
        onset=view.label(0),
        onset_range=(view.label(0), view.label(0)),
        evidence=view.events(types=["optimizer_instability"], state="loss_plateau"),
        chain=(
            link(
                None,
                view.label(0),
                f"lr {figure(high)} makes steps of {float(np.median(per_step)):.1e} of the weights",
            ),
            link(None, view.label(0), "the loss stands still although gradients are there"),
        ),
        explains=frozenset({"unknown", "labels_unrelated_to_inputs"}),
    )


def _is_cut_short(view: CaseView) -> bool:
    """Whether clipping, not the lr, makes the steps so small: gradients are far above its limit."""
    total, limit = view.ledger("clip_total_norm"), view.ledger("clip_max_norm")
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = float(quiet(np.nanmedian, total / limit))
    return not view.is_adaptive and excess > CUT


def _is_zero(view: CaseView) -> bool:
    """Whether the optimizer stepped with an lr of exactly 0 on every step."""
    known = view.lr[np.isfinite(view.lr)]
    return len(known) >= ENOUGH_STEPS and not known.any()


def _zero(view: CaseView) -> Assessment:
    step = view.label(0)
    return Assessment(
        cause="lr_too_low",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.9,
        description=(
            f"Learning rate too low from step {step}: it is exactly 0 on all {len(view.steps)} "
            f"steps, so no update moves a weight and the loss stayed at {figure(view.curve.end)}; "
            "a warmup or schedule may never start."
        ),
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["optimizer_instability"], state="loss_plateau"),
        chain=(
            link(None, step, "the lr is 0, so every update is exactly 0"),
            link(None, step, "the loss stands still although gradients are there"),
        ),
        explains=frozenset({"unknown", "labels_unrelated_to_inputs", "deep_without_residual"}),
        is_direct=True,
    )
