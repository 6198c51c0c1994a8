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


def assess(view: CaseView) -> Assessment | None:
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
        explains=frozenset({"unknown", "lr_too_high", "half_precision_overflow"}),
        is_direct=True,
    )
