# SPDX-License-Identifier: MIT
"""How the figures of several ranks become those of the whole run.

Arrays are `[R, T, rows, columns]`, `R` ranks in order, `T` steps; results `[T, rows, columns]`.
NaN: not measured. A figure of a batch is combined over the ranks' batches, one of a parameter over
its shards; copies of the same part count once.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    OptimizerStat,
    ParameterStat,
)
from neuraldbg.trace import LEDGER_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from neuraldbg.schema.run import RunInfo

Array = NDArray[Any]


def mean(x: Array) -> Array:
    """Return the mean over the ranks that measured it."""
    return _quiet(np.nanmean, x)


def root_mean_square(x: Array) -> Array:
    """Return the root mean square over equal batches."""
    return np.asarray(np.sqrt(_quiet(np.nanmean, np.square(x))))


def least(x: Array) -> Array:
    """Return the smallest figure of any rank."""
    return np.asarray(np.fmin.reduce(x))


def most(x: Array) -> Array:
    """Return the largest figure of any rank."""
    return np.asarray(np.fmax.reduce(x))


def first(x: Array) -> Array:
    """Return the figure of the lowest rank that measured it."""
    result = x[0]
    for other in x[1:]:
        result = np.where(np.isnan(result), other, result)
    return np.asarray(result)


def total(x: Array) -> Array:
    """Return the sum over ranks; NaN where none measured it."""
    return np.where(np.isnan(x).all(axis=0), np.nan, np.nansum(x, axis=0))


ACTIVATION: dict[int, Callable[[Array], Array]] = {
    ActivationStat.CALLS: most,
    ActivationStat.RMS: root_mean_square,
    ActivationStat.MIN: least,
    ActivationStat.MAX: most,
    ActivationStat.NONFINITE: most,
    ActivationStat.INPUT_RMS: root_mean_square,
}
INPUT: dict[int, Callable[[Array], Array]] = {
    InputStat.RMS: root_mean_square,
    InputStat.MIN: least,
    InputStat.MAX: most,
    InputStat.NAN: most,
    InputStat.INF: most,
    InputStat.CONSTANT_SHARE: least,
}
OPTIMIZER: dict[int, Callable[[Array], Array]] = {OptimizerStat.STEPPED: most}
LEDGER: dict[int, Callable[[Array], Array]] = {
    LEDGER_FIELDS.index("is_cleared"): least,
    LEDGER_FIELDS.index("loss_scale"): least,
    LEDGER_FIELDS.index("batch_size"): total,
    LEDGER_FIELDS.index("clip_max_norm"): first,
    LEDGER_FIELDS.index("clip_total_norm"): first,
}
SQUARES = (
    ParameterStat.WEIGHT_RMS,
    ParameterStat.UPDATE_RMS,
    ParameterStat.SECOND_MOMENT_RATIO,
)
"""Figures of a sample that are root mean squares."""
SHARES = (ParameterStat.GRAD_COSINE, ParameterStat.EPS_SHARE, ParameterStat.GRAD_ZERO_SHARE)
STATES = (
    GradState.NONFINITE,
    GradState.PRESENT,
    GradState.UNSCALED_UNKNOWN,
    GradState.ZERO,
    GradState.NONE,
    GradState.NOT_STEPPED,
)
"""Of several shards in several states the first of these is the state of the whole."""


@dataclass(frozen=True, eq=False)
class Shards:
    """Which part of which parameter each rank holds, and how much of it."""

    index: Array
    """`[R, P]`."""
    size: Array
    """`[R, P]`, elements."""

    @classmethod
    def of(cls, runs: Sequence[RunInfo]) -> Shards:
        """Return what the descriptions of the ranks say."""
        index = [[parameter.shard[0] for parameter in run.parameters] for run in runs]
        size = [
            [
                int(np.prod(p.shape, dtype=np.int64)) if p.local_size is None else p.local_size
                for p in run.parameters
            ]
            for run in runs
        ]
        return cls(np.array(index, dtype=np.int64), np.array(size, dtype=np.float64))

    def __len__(self) -> int:
        return int(self.index.max(initial=0)) + 1


def combine(block: str, x: Array, shards: Shards) -> Array:
    """Return one block of a step's vector for the whole run.

    Args:
        block: Its name in `trace.layout.BLOCKS`.
        x: `[R, T, rows, columns]` float32.
        shards: For the block of parameters.
    """
    if not x.size:
        return np.asarray(x[0])
    with np.errstate(all="ignore"):
        if block == "parameter":
            return _parameters(x.astype(np.float64), shards).astype(np.float32)
        if block == "activation":
            merged = _by_column(x, ACTIVATION, mean)
            return _worst(x, merged, x[..., ActivationStat.NONFINITE] > 0)
        if block == "inputs":
            merged = _by_column(x, INPUT, mean)
            is_bad = (x[..., InputStat.NAN] > 0) | (x[..., InputStat.INF] > 0)
            return _worst(x, merged, is_bad)
        rules, rest = {
            "optimizer": (OPTIMIZER, first),
            "ledger": (LEDGER, most),
            "step": ({}, most),
        }[block]
        return _by_column(x, rules, rest)


def _by_column(
    x: Array, rules: dict[int, Callable[[Array], Array]], rest: Callable[[Array], Array]
) -> Array:
    columns = [rules.get(column, rest)(x[..., column]) for column in range(x.shape[-1])]
    return np.stack(columns, axis=-1).astype(np.float32)


def _worst(x: Array, merged: Array, is_bad: Array) -> Array:
    """Let the first rank on which a row was not finite speak for all: no mean hides it."""
    rank = is_bad.argmax(axis=0)
    theirs = np.take_along_axis(x, rank[None, ..., None], axis=0)[0]
    anywhere = np.asarray(is_bad.any(axis=0))
    return np.where(anywhere[..., None], theirs, merged)


def _parameters(x: Array, shards: Shards) -> Array:
    parts, sizes = [], []
    for part in range(len(shards)):
        holds = (shards.index == part)[:, None, :, None]
        parts.append(_copies(np.where(holds, x, np.nan)))
        sizes.append(np.where(shards.index == part, shards.size, 0.0).max(axis=0))
    if len(parts) == 1:
        return parts[0]
    return _sharded(np.stack(parts), np.stack(sizes)[:, None, :])


def _copies(x: Array) -> Array:
    """Return the figures of one part from the ranks that hold a copy of it.

    They must agree, and the lowest rank speaks for them; one whose gradient is not finite does
    where there is one, and one whose optimizer stepped it where others leave that to it.
    """
    state = x[..., ParameterStat.GRAD_STATE]
    order = np.where(np.isnan(state) | (state == GradState.NOT_STEPPED), 2, 1)
    order = np.where(state == GradState.NONFINITE, 0, order)
    best = order.argmin(axis=0)
    chosen = np.take_along_axis(x, best[None, ..., None], axis=0)[0]
    # Samples are taken by each rank's own budget: another one may have what this one lacks.
    sampled = np.asarray(first(x))
    columns = [*SQUARES, *SHARES, ParameterStat.WEIGHT_MAX]
    chosen[..., columns] = np.where(
        np.isnan(chosen[..., columns]), sampled[..., columns], chosen[..., columns]
    )
    return np.asarray(chosen)


def _sharded(x: Array, size: Array) -> Array:
    """Return the figures of whole parameters from those of their parts, `[S, T, P, columns]`."""
    result = np.full(x.shape[1:], np.nan)
    norm = ParameterStat.GRAD_NORM
    result[..., norm] = np.sqrt(total(np.square(x[..., norm])))
    result[..., ParameterStat.GRAD_STATE] = _states(x[..., ParameterStat.GRAD_STATE])
    for column in SQUARES:
        result[..., column] = np.sqrt(_weighted(np.square(x[..., column]), size))
    for column in SHARES:
        result[..., column] = _weighted(x[..., column], size)
    result[..., ParameterStat.WEIGHT_MAX] = most(x[..., ParameterStat.WEIGHT_MAX])
    return result


def _weighted(x: Array, size: Array) -> Array:
    known = np.where(np.isnan(x), 0.0, size)
    return np.asarray(np.nansum(x * known, axis=0) / known.sum(axis=0))


def _states(x: Array) -> Array:
    result = mean(x)  # of steps that are one row already, where they differ
    for state in reversed(STATES):
        result = np.where((x == state).any(axis=0), float(state), result)
    return np.asarray(result)


def _quiet(function: Callable[..., Any], x: Array) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nothing was measured
        return np.asarray(function(x, axis=0))
