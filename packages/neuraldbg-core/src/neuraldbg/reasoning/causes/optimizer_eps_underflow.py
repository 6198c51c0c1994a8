# SPDX-License-Identifier: MIT
"""Optimizer eps underflow: eps is below the smallest number of the state's dtype, so 0 divides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.schema.facts import GradState, OptimizerStat, ParameterStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

SMALLEST_HALF = 6e-8
"""The smallest positive number of fp16, 2**-24."""
FAR = 100.0
"""RMS of an update over the bound of Adam. Heuristic: the bound is exact, this is no rounding."""
BOUNDED = frozenset({"adam", "adamw", "nadam", "adamax"})
"""Optimizers of torch whose updates have that bound; RAdam's first ones have none."""
EXPLAINS = frozenset(
    {
        "unknown",
        "lr_too_high",
        "missing_warmup",
        "stale_second_moment",
        "resume_without_optimizer_state",
        "dying_relu",
        "labels_unrelated_to_inputs",
        "half_precision_overflow",
    }
)


def assess(view: CaseView) -> Assessment | None:
    """Look for finite gradients that made weights which are not, or updates far beyond the lr."""
    return _broken(view) or _lost(view)


def _lost(view: CaseView) -> Assessment | None:
    """Look for updates far beyond what Adam can make unless its second moments are lost.

    They hold (1 - beta2) of the square of every gradient that is in the first moments, so no update
    exceeds lr (1 - beta1) / sqrt(1 - beta2), or lr where that is less (Kingma and Ba 2015, section
    2.1), but for what weight decay adds. Squares that round to 0 leave eps alone to divide by.
    """
    if not view.optimizer_kinds or view.optimizer_kinds - BOUNDED or view.curve.learned:
        return None
    moved = view.parameter(ParameterStat.UPDATE_RMS) / view.lr[:, None]
    decay = np.nanmax(view.optimizer(OptimizerStat.WEIGHT_DECAY), initial=0.0)
    bound = _bound(view)
    most = FAR * (bound + decay * view.parameter(ParameterStat.WEIGHT_RMS))
    thrown = np.isfinite(moved) & (moved > most)
    rows = np.flatnonzero(thrown.any(axis=1))
    if not len(rows):
        return None
    step = view.label(int(rows[0]))
    far = float(np.nanmax(moved[rows[0]]))
    eps = float(np.nanmin(view.optimizer(OptimizerStat.EPS), initial=1.0))
    return Assessment(
        cause="optimizer_eps_underflow",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.9,
        description=(
            f"Optimizer eps underflow at step {step}: one update is {figure(far)} times the lr, "
            f"and Adam's are at most {figure(bound)} times unless second moments have "
            f"rounded to 0 and eps {figure(eps)} alone divides."
        ),
        onset=step,
        onset_range=(max(step - 1, view.label(0)), step),
        evidence=view.events(types=["optimizer_instability", "gradient_health_transition"]),
        chain=(
            link(None, step, "squares of the gradients are below the smallest number of the state"),
            link(None, step, f"one update is {figure(far)} times the lr"),
        ),
        explains=EXPLAINS,
        is_direct=True,
    )


def _bound(view: CaseView) -> float:
    """Return the largest update of Adam in units of the lr; at least 1."""
    first = np.nanmin(view.optimizer(OptimizerStat.MOMENTUM), initial=1.0)
    second = np.nanmax(view.optimizer(OptimizerStat.BETA2), initial=0.0)
    return float(max(1.0, (1 - first) / max(np.sqrt(1 - second), 1e-6)))


def _broken(view: CaseView) -> Assessment | None:
    """Look for half-precision weights that break on a step whose gradients were finite."""
    half = [i for i, p in enumerate(view.run.parameters) if p.dtype == "float16"]
    eps = view.optimizer(OptimizerStat.EPS)
    if not half or not eps.size or not (np.nanmin(eps, initial=1.0) < SMALLEST_HALF):
        return None
    size = view.parameter(ParameterStat.WEIGHT_MAX)[:, half]
    state = view.parameter(ParameterStat.GRAD_STATE)[:, half]
    broken = ((~np.isfinite(size)) & np.isfinite(state)).any(axis=1)
    rows = np.flatnonzero(broken)
    if not len(rows) or (state[: rows[0] + 1] == GradState.NONFINITE).any():
        return None
    step = view.label(int(rows[0]))
    return Assessment(
        cause="optimizer_eps_underflow",
        failure=FailureType.NUMERICAL_ERROR,
        confidence=0.9,
        description=(
            f"Optimizer eps underflow at step {step}: weights and optimizer state are float16, eps "
            f"{figure(float(np.nanmin(eps)))} is 0 there, and finite gradients made weights that "
            "are not."
        ),
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["numerical_error"], until=step + 1),
        chain=(
            link(None, step, "eps rounds to 0 in float16, and so does the second moment"),
            link(None, step, "the update divides by 0"),
        ),
        explains=EXPLAINS,
        is_direct=True,
    )
