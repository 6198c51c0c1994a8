# SPDX-License-Identifier: MIT
"""Whether ranks that hold copies of the same weights still do.

Weights decide. Gradients may differ where they are read and be averaged later (by the optimizer
itself), and weights may differ for a while and be averaged later (local SGD): neither is a fault.
Weights that part and never meet again are.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.merge.combine import Array, Shards
from neuraldbg.schema.facts import Observation, OptimizerStat, ParameterStat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.schema.run import RunInfo

WEIGHTS = 1e-4
"""Relative difference of a weight's RMS. Heuristic: rounding of float32 sums is below 1e-6, also
between accelerators; ranks that train by themselves pass it within a few steps."""
GRADIENTS = 1e-2
"""Relative difference of gradient norms and of learning rates: what is averaged agrees to
rounding."""
ENOUGH = 3
"""Steps on which the ranks must differ, the last ones measured. Heuristic: against a single torn
reading."""
LONGER = 2
"""Times the longest spell apart that ended: who averages weights now and then will again."""
FEW = 0.5
"""Share of the parameters up to which the layer of the first one is to blame."""


@dataclass(frozen=True, eq=False)
class Parting:
    """Where a parameter's copies part for good: rows of the aligned steps."""

    row: int
    good: int
    """Last row on which they agreed; -1: never."""
    difference: float
    """Relative, at the end."""


def disagreement(
    runs: Sequence[RunInfo], steps: Array, parameter: Array, optimizer: Array
) -> Observation | None:
    """Return what tells that copies of the same weights part and never agree again.

    Args:
        runs: What the ranks say of themselves, in order.
        steps: `[T]` labels of the steps that every rank kept exactly.
        parameter: `[R, T, P, len(ParameterStat)]`.
        optimizer: `[R, T, O, len(OptimizerStat)]`.
    """
    shards = Shards.of(runs)
    found = {
        row: parting
        for row in range(parameter.shape[2])
        if (parting := _parting(parameter[:, :, row], shards.index[:, row])) is not None
    }
    if not found:
        return None
    row = min(found, key=lambda p: (found[p].row, p))
    first, good = found[row].row, found[row].good
    weights = runs[0].parameters[row]
    gradients = _median(_spread(parameter[:, :, list(found), ParameterStat.GRAD_NORM]))
    while first > 0 and gradients[first - 1] > GRADIENTS and gradients[first] > GRADIENTS:
        first, good = first - 1, first - 2  # Adam's first step is as long whatever the gradient
    starts = [run.parameters[row].initial_rms for run in runs]
    reasons = {
        "starts_apart": float(_relative(starts) > WEIGHTS and len(shards) == 1),
        "gradients_apart": float(np.nan_to_num(_median(gradients[first:]))),
        "lr_apart": _most_apart(optimizer[:, first:, :, OptimizerStat.LR]),
    }
    figures = {
        "difference": max(one.difference for one in found.values()),
        "parameters": float(len(found)),
        "of": float(parameter.shape[2]),
        "good": float(steps[good]) if good >= 0 else -1.0,
        **reasons,
    }
    words = {"cause": "rank_divergence", "parameter": weights.name}
    is_local = len(found) <= FEW * parameter.shape[2] and max(reasons.values()) <= GRADIENTS
    layer = weights.layer if is_local else None
    return Observation("rank_divergence", int(steps[first]), layer, figures, words)


def _parting(figures: Array, index: Array) -> Parting | None:
    """Return where copies of one parameter part for good, `figures` being `[R, T, columns]`."""
    (part, copies), *_ = Counter(index.tolist()).most_common(1)
    if copies < 2:
        return None
    held = figures[index == part]
    weight = _spread(held[:, :, ParameterStat.WEIGHT_RMS])
    rows = np.flatnonzero(~np.isnan(weight))
    agrees = np.flatnonzero(weight[rows] <= WEIGHTS)
    after = int(agrees[-1]) + 1 if len(agrees) else 0
    before = int(np.diff(agrees, prepend=-1).max(initial=1)) - 1
    if len(rows) - after < ENOUGH + LONGER * before:
        return None
    row, good = int(rows[after]), int(rows[after - 1]) if after else -1
    # The step that parted them moved equal weights by different updates.
    update = _spread(held[:, :, ParameterStat.UPDATE_RMS])
    began = np.flatnonzero(update[max(good, 0) : row] > GRADIENTS)
    if len(began):
        row = max(good, 0) + int(began[0])
        good = row - 1
    return Parting(row, good, float(weight[rows[-1]]))


def _spread(x: Array) -> Array:
    """Return the relative difference over ranks (axis 0); NaN where fewer than two measured."""
    with np.errstate(all="ignore"):
        high, low = np.fmax.reduce(x), np.fmin.reduce(x)
        spread = (high - low) / np.maximum(np.abs(high), np.abs(low))
    spread = np.where(high == low, 0.0, spread)
    return np.where((~np.isnan(x)).sum(axis=0) < 2, np.nan, spread)


def _median(x: Array) -> Array:
    """Return the median over the last axis; NaN where nothing was measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(x, axis=-1))


def _relative(values: Sequence[float]) -> float:
    high, low = max(values), min(values)
    return (high - low) / high if high > 0 else 0.0


def _most_apart(x: Array) -> float:
    spread = _spread(x)
    return float(np.nanmax(spread)) if spread.size and not np.isnan(spread).all() else 0.0
