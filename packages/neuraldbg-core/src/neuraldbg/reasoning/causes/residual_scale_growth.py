# SPDX-License-Identifier: MIT
"""Residual scale growth: branches add up unscaled, and the stream grows with depth."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerRole
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

GROWTH = 10.0
"""RMS that the last layers receive over what the first receive, at step 0."""


def assess(view: CaseView) -> Assessment | None:
    """Compare what layers on the residual stream receive, first against last."""
    if view.curve.learned or not view.curve or not len(view.steps):
        return None
    stream = [
        x
        for x in view.flow.executed
        if x.has_residual and (x.path in view.flow.matrices or x.role is LayerRole.NORMALIZATION)
    ]
    if len(stream) < 4:
        return None
    incoming = view.early(view.activation(ActivationStat.INPUT_RMS))
    rms = np.array([incoming[view.flow.row[x.path]] for x in stream])
    if not np.isfinite(rms).sum() >= 4:
        return None
    usable = np.flatnonzero(np.isfinite(rms) & (rms > 0))
    growth = float(rms[usable[-1]] / rms[usable[0]])
    if growth < GROWTH or rms[usable[-1]] < 5:
        return None
    step, layer = view.label(0), stream[int(usable[0])].path
    ratios = branch_ratios(view)
    share = f" (branches are up to {figure(max(ratios))} times the stream)" if ratios else ""
    return Assessment(
        cause="residual_scale_growth",
        failure=FailureType.EXPLODING_GRADIENTS
        if view.curve.is_diverged
        else FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.7,
        description=(
            f"Residual stream grows with depth from {named(layer)} on at step {step}: its RMS goes "
            f"from {figure(float(rms[usable[0]]))} to {figure(float(rms[usable[-1]]))} over "
            f"{len(usable)} blocks, because branches add up unscaled{share}."
        ),
        layer=layer,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(until=step + 5),
        chain=(link(layer, step, "every branch adds its full scale to the stream"),),
        explains=frozenset(
            {"lr_too_high", "missing_gradient_clipping", "unknown", "missing_warmup"}
        ),
    )


def branch_ratios(view: CaseView) -> list[float]:
    """Return RMS of the branch over RMS of the stream it is added to, per block, at the start.

    The branch is the last layer that feeds a sum, the stream before it what the block's first
    reader received; blocks for which one of the two was not measured are left out.
    """
    rms = view.early(view.activation(ActivationStat.RMS))
    incoming = view.early(view.activation(ActivationStat.INPUT_RMS))
    readers = [x for x in view.flow.executed if x.has_residual]
    found = []
    for before, after in pairwise(readers):
        own = [p for p in after.parents if p in view.flow.row and p not in before.parents]
        stream = float(incoming[view.flow.row[before.path]])
        branch = float(rms[view.flow.row[own[-1]]]) if own else float("nan")
        if np.isfinite(stream) and np.isfinite(branch) and stream > 0:
            found.append(branch / stream)
    return found
