# SPDX-License-Identifier: MIT
"""Half-precision underflow: most gradients are exactly 0 because fp16 has no smaller numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.symptoms import dead_layers
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import GradState, ParameterStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

ZEROS = 0.5
"""Share of exact zeros in a gradient, median over matrices. Rectifiers alone rarely reach it in
dense layers, and not in half precision only; the dtype is part of the evidence."""


def assess(view: CaseView) -> Assessment | None:
    """Look for float16 layers whose gradients are mostly exact zeros, without a loss scale."""
    half = [i for i in view.matrix_rows if view.run.parameters[i].dtype == "float16"]
    is_cast = not half and "float16_outputs" in view.observations
    if is_cast:
        half = list(view.matrix_rows)
    if not half or not view.is_failing or view.is_broken:
        return None
    if np.isfinite(view.ledger("loss_scale")).any() or (is_cast and dead_layers(view)):
        return None
    share_of = view.parameter(ParameterStat.GRAD_ZERO_SHARE)[:, half]
    is_zero = view.parameter(ParameterStat.GRAD_STATE)[:, half] == GradState.ZERO
    zeros = quiet(np.nanmedian, np.where(is_zero, 1.0, share_of), axis=0)
    share = float(quiet(np.nanmedian, zeros))
    if not share > ZEROS:
        return None
    what = "layers compute in" if is_cast else "weights are"
    step = view.label(0)
    layer = view.run.parameters[int(half[int(np.nanargmax(zeros))])].layer
    return Assessment(
        cause="half_precision_underflow",
        failure=FailureType.VANISHING_GRADIENTS,
        confidence=0.75,
        description=(
            f"Half-precision underflow from step {step}: {what} float16, no loss scale is used, "
            f"and {100 * share:.0f} % of the gradients are exactly 0 (smallest float16: "
            f"{figure(6e-8)})."
        ),
        layer=layer,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["gradient_health_transition"]),
        chain=(link(layer, step, "gradients below 6e-8 round to 0"),),
        explains=frozenset(
            {"lr_too_low", "unknown", "labels_unrelated_to_inputs", "zero_grad_before_step"}
        ),
    )
