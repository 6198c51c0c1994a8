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
    if not half or view.is_broken or not (view.is_failing or _is_lost(view)):
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


FEW = 5
"""Steps below which gradients of 0 may be chance."""


def _is_lost(view: CaseView) -> bool:
    """Whether every gradient was exactly 0 on every step: no weight moves, whatever the loss does.

    Units that died leave the biases of the last layer theirs; a loss that reached 0 had gradients
    before; a loop that clears them before the step had them, too.
    """
    rows = (view.ledger("backwards") > 0) & (view.ledger("steps") > 0)
    state = view.parameter(ParameterStat.GRAD_STATE)[rows]
    heard = state[:, (state != GradState.NONE).any(axis=0)]
    cleared = view.ledger("is_cleared_before_step")[rows]
    known = heard[~np.isnan(heard).all(axis=1)]
    return len(known) >= FEW and bool((known == GradState.ZERO).all()) and not cleared.any()
