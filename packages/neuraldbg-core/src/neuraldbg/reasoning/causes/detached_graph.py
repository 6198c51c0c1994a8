# SPDX-License-Identifier: MIT
"""Detached graph, seen from its end: gradients that are exactly zero from the first step on.

Where nothing at all arrives, capture says so (`gradient_absent`). A path that is cut, beside one
that is multiplied by zero (a term of weight 0, a straight path through `.data`), leaves zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, link, named
from neuraldbg.reasoning.causes.observed import SYMPTOMATIC
from neuraldbg.reasoning.symptoms import RECTIFIERS, flat_share, is_always_zero
from neuraldbg.schema.facts import ActivationStat, GradState, ParameterStat
from neuraldbg.schema.run import LayerRole
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

SHUT = 0.9
"""Share of units out of reach from which zeros are the activation function's own."""


def assess(view: CaseView) -> Assessment | None:
    """Look for layers at the model's input whose gradient is exactly zero while others learn."""
    if not view.curve or view.is_broken or len(view.run.models) > 1:
        return None
    cut = _cut_midway(view)
    if cut is not None or view.curve.learned:
        return cut
    state = view.parameter(ParameterStat.GRAD_STATE)
    idle = [x.path for x in view.flow.weighted if is_always_zero(state, view.flow.matrices[x.path])]
    trained = [x.path for x in view.flow.weighted if x.path not in idle]
    entries = {x.path for x in view.flow.entries}
    if not trained or not entries & set(idle) or _has_own_reason(view, idle):
        return None
    if _has_faded(view, trained):
        return None
    first, step = idle[0], view.label(0)
    where = named(first) if len(idle) == 1 else f"{named(first)} and {len(idle) - 1} more"
    return Assessment(
        cause="detached_graph",
        failure=FailureType.TRAINING_WIRING,
        confidence=0.7,
        description=(
            f"Detached graph at step {step}: the gradient of {where} is exactly zero on every "
            f"step while that of {named(trained[-1])} is not: the path from there to the loss is "
            "cut, or multiplied by zero."
        ),
        layer=first,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["gradient_health_transition"], layers=idle),
        chain=(link(first, step, "no part of the loss that counts depends on it"),),
        explains=SYMPTOMATIC | {"blocked_zero_init", "half_precision_underflow"},
        is_direct=True,
    )


FEW = 5
"""Measured steps without any gradient that are no accident."""
DONE = 1e-3
"""Last loss over the first up to which there is nothing left to learn. Heuristic."""


def _cut_midway(view: CaseView) -> Assessment | None:
    """Look for optimizer steps, up to the end, that no gradient at all came before.

    Parameters had gradients until then. What cleared them too soon is another fault.
    """
    state = view.parameter(ParameterStat.GRAD_STATE)
    known = np.isfinite(state) & (state != GradState.NOT_STEPPED)
    rows = np.flatnonzero(known.any(axis=1) & (view.ledger("steps") > 0))
    is_empty = ((state == GradState.NONE) | ~known)[rows].all(axis=1)
    given = np.flatnonzero(~is_empty)
    if not len(given) or len(rows) - given[-1] - 1 < FEW:
        return None
    last, empty = int(rows[given[-1]]), rows[given[-1] + 1 :]
    if np.mean(view.ledger("is_cleared_before_step")[empty] > 0) > 1 / 2:
        return None
    step = view.label(int(empty[0]))
    if not view.curve.end > DONE * abs(view.curve.start):
        return None  # a margin that all samples keep leaves nothing to learn, and no backward
    return Assessment(
        cause="detached_graph",
        failure=FailureType.TRAINING_WIRING,
        confidence=0.85,
        description=(
            f"Detached graph from step {step}: the optimizer steps, and no parameter has a "
            "gradient any more: what backward is called on does not depend on any of them."
        ),
        onset=step,
        onset_range=(view.label(last) + 1, step),
        evidence=view.events(types=["gradient_health_transition"]),
        chain=(link(None, step, "the loss is cut off from every parameter"),),
        explains=SYMPTOMATIC | {"missing_optimizer_step", "lr_decayed_to_zero"},
        is_direct=True,
    )


FADED = 1e-20
"""Gradient of a layer over that of the strongest from which zeros before it are what is left of a
signal that faded. Heuristic: far below what one layer, or a path that is cut, takes away."""
OFTEN = 3
"""Calls of a layer within a step from which it is a recurrence."""


def _has_faded(view: CaseView, trained: list[str]) -> bool:
    """Whether gradients fade along the depth, or over the time steps of a recurrence."""
    early = [float(view.early(view.layer_gradient(path))) for path in trained]
    known = [value for value in early if np.isfinite(value)]
    if known and min(known) < FADED * max(known):
        return True
    calls = view.activation(ActivationStat.CALLS)
    return any(
        layer.role is LayerRole.RECURRENT
        or float(view.early(calls[:, view.flow.row[layer.path]])) > OFTEN
        for layer in view.flow.executed
    )


def _has_own_reason(view: CaseView, idle: list[str]) -> bool:
    """Whether zeros come from dead or saturated units, or from weights that start at zero."""
    if "zero_factors" in view.observations:
        return True
    if any(p.initial_rms == 0.0 and len(p.shape) > 1 for p in view.run.parameters):
        return True
    silent = view.activation(ActivationStat.SILENT_SHARE)
    for layer in view.flow.executed:
        row = view.flow.row[layer.path]
        share = silent[:, row] if layer.activation in RECTIFIERS else flat_share(view, layer.path)
        if float(view.early(share)) > SHUT or float(view.late(share)) > SHUT:
            return True
    half = any("16" in p.dtype for p in view.run.parameters if p.layer in idle)
    return half or "float16_outputs" in view.observations
