# SPDX-License-Identifier: MIT
"""Layer x step heat maps: one statistic of every layer over the whole run, as a small picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from neuraldbg.schema.facts import ActivationStat, GradState, ParameterStat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.schema.run import RunInfo
    from neuraldbg.trace import FactTable, Trace

Floats = NDArray[np.floating]

MOST_COLUMNS = 240
MOST_ROWS = 256
"""Heuristic: about one column per four screen pixels, and rows that can still be told apart."""
ABSENT = 0
NONFINITE = 255
TOP = 254


@dataclass(frozen=True)
class Scale:
    """How the values of a statistic become levels 1 to 254."""

    is_log: bool = False
    low: float | None = None
    """Value of level 1; None: the smallest seen."""
    high: float | None = None
    """Value of level 254; None: the largest seen."""


@dataclass(frozen=True)
class Heatmap:
    """Levels of one statistic, ready to be drawn."""

    title: str
    note: str
    layers: tuple[str, ...]
    starts: tuple[int, ...]
    """First step of each column."""
    stops: tuple[int, ...]
    """Last step of each column."""
    levels: NDArray[np.uint8]
    """`[R, C]`: 0 not measured, 1 to 254 from `low` to `high`, 255 not finite."""
    low: float
    high: float
    is_log: bool


def heatmaps(trace: Trace) -> list[Heatmap]:
    """Return the heat maps of a run, without those of which nothing was measured."""
    facts, run = trace.facts, trace.run
    if not len(facts.steps):
        return []
    layers = _rows(run, {event.layer for event in trace.events})
    cuts = np.unique(np.linspace(0, len(facts.steps), MOST_COLUMNS + 1).astype(int))
    maps = [
        _heatmap(title, note, scale, values, bad, facts, layers, cuts)
        for title, note, scale, values, bad in _statistics(facts, run, layers)
    ]
    return [each for each in maps if each.levels.any()]


def _rows(run: RunInfo, accused: set[str | None]) -> tuple[str, ...]:
    """Return the layers to show, in execution order; with too many, those with events first."""
    order = {layer.path: (layer.order < 0, layer.order) for layer in run.layers}
    paths = sorted(order, key=lambda path: order[path])
    paths += [each.layer for each in run.parameters if each.layer not in order]
    paths = list(dict.fromkeys(paths))
    if len(paths) <= MOST_ROWS:
        return tuple(paths)
    kept = [path for path in paths if path in accused][:MOST_ROWS]
    others = [path for path in paths if path not in accused]
    even = np.linspace(0, len(others) - 1, MOST_ROWS - len(kept)).astype(int)
    chosen = {*kept, *(others[index] for index in even)}
    return tuple(path for path in paths if path in chosen)


Statistic = tuple[str, str, Scale, Floats, NDArray[np.bool_]]


def _statistics(facts: FactTable, run: RunInfo, layers: Sequence[str]) -> list[Statistic]:
    """Return title, note, scale, values `[T, R]` and non-finite flags `[T, R]` of each map."""
    share, logs = Scale(low=0.0, high=1.0), Scale(is_log=True)
    gradient, bad_gradient = _gradient_norm(facts, run, layers)
    update = _update_ratio(facts, run, layers)
    whole = _of_layers(facts, run, layers)
    bad = whole(ActivationStat.NONFINITE) > 0
    none = np.zeros_like(bad)
    return [
        ("Gradient norm", "L2 over the layer's parameters, before clipping", logs,
         gradient, bad_gradient),
        ("Update / weight", "largest RMS of the update over RMS of the weight", logs,
         update, none),
        ("Activation RMS", "of the layer's output", logs, whole(ActivationStat.RMS), bad),
        ("Zeros", "share of exact zeros in the output", share,
         whole(ActivationStat.ZERO_SHARE), none),
        ("Flat region", "share where the activation's derivative is nearly zero", share,
         whole(ActivationStat.FLAT_SHARE), none),
        ("Silent units", "share of units that gave nothing for several steps", share,
         whole(ActivationStat.SILENT_SHARE), none),
        ("Directions", "effective number of directions among the samples", logs,
         whole(ActivationStat.RANK), none),
        ("Likeness", "mean cosine between samples; 1: all the same", Scale(low=-1.0, high=1.0),
         whole(ActivationStat.COSINE), none),
    ]  # fmt: skip


class _of_layers:  # noqa: N801  # called like a function; holds the row numbers
    """Columns of the activation block, `[T, R]` in the order of the shown layers."""

    def __init__(self, facts: FactTable, run: RunInfo, layers: Sequence[str]) -> None:
        at = {layer.path: index for index, layer in enumerate(run.layers)}
        self.block = facts.activation
        self.rows = np.array([at.get(path, -1) for path in layers], dtype=int)

    def __call__(self, stat: ActivationStat) -> Floats:
        values = np.full((len(self.block), len(self.rows)), np.nan, dtype=np.float32)
        known = (self.rows >= 0) & (self.rows < self.block.shape[1])
        values[:, known] = self.block[:, self.rows[known], stat]
        return values


def _owners(facts: FactTable, run: RunInfo, layers: Sequence[str]) -> list[list[int]]:
    """Return for each shown layer the rows of its own parameters."""
    held: dict[str, list[int]] = {}
    for index, parameter in enumerate(run.parameters[: facts.parameter.shape[1]]):
        held.setdefault(parameter.layer, []).append(index)
    return [held.get(path, []) for path in layers]


def _gradient_norm(
    facts: FactTable, run: RunInfo, layers: Sequence[str]
) -> tuple[Floats, NDArray[np.bool_]]:
    shape = (len(facts.steps), len(layers))
    values, bad = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    for column, rows in enumerate(_owners(facts, run, layers)):
        if rows:
            norm = facts.parameter[:, rows, ParameterStat.GRAD_NORM].astype(np.float64)
            state = facts.parameter[:, rows, ParameterStat.GRAD_STATE]
            total = np.sqrt(np.nansum(norm**2, axis=1))
            values[:, column] = np.where(np.isnan(norm).all(axis=1), np.nan, total)
            bad[:, column] = (state == GradState.NONFINITE).any(axis=1)
    return values, bad


def _update_ratio(facts: FactTable, run: RunInfo, layers: Sequence[str]) -> Floats:
    values = np.full((len(facts.steps), len(layers)), np.nan)
    for column, rows in enumerate(_owners(facts, run, layers)):
        if rows:
            update = facts.parameter[:, rows, ParameterStat.UPDATE_RMS].astype(np.float64)
            weight = facts.parameter[:, rows, ParameterStat.WEIGHT_RMS].astype(np.float64)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(weight > 0, update / weight, np.nan)
            values[:, column] = np.fmax.reduce(ratio, axis=1)
    return values


def _heatmap(
    title: str,
    note: str,
    scale: Scale,
    values: Floats,
    bad: NDArray[np.bool_],
    facts: FactTable,
    layers: tuple[str, ...],
    cuts: NDArray[np.int64],
) -> Heatmap:
    levels, low, high = _levels(scale, values, bad | np.isinf(values), cuts)
    kept = [bool(row.any()) for row in levels]
    return Heatmap(
        title,
        note,
        tuple(path for path, is_kept in zip(layers, kept, strict=True) if is_kept),
        tuple(int(facts.steps[cut]) for cut in cuts[:-1]),
        tuple(int(facts.stops[cut - 1]) for cut in cuts[1:]),
        levels[kept],
        low,
        high,
        scale.is_log,
    )


def _levels(
    scale: Scale, values: Floats, bad: NDArray[np.bool_], cuts: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], float, float]:
    """Return levels `[R, C]` of values `[T, R]`, and the values of the lowest and the highest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shown = np.log10(values) if scale.is_log else np.asarray(values, dtype=np.float64)
    # A zero has no logarithm: it takes the lowest level instead of vanishing from the picture.
    zero = (values == 0) if scale.is_log else np.zeros_like(bad)
    shown = np.where(np.isfinite(shown), shown, np.nan)
    means, zeros, bads = (_binned(each, cuts) for each in (shown, zero, bad))
    seen = means[np.isfinite(means)]
    low = scale.low if scale.low is not None else float(seen.min(initial=np.inf))
    high = scale.high if scale.high is not None else float(seen.max(initial=-np.inf))
    low, high = (low, high) if np.isfinite([low, high]).all() else (0.0, 1.0)
    # Where all values are the same, the middle of the scale says so better than an end.
    unit = (means - low) / (high - low) if high > low else np.where(np.isnan(means), np.nan, 0.5)
    unit = np.nan_to_num(np.clip(unit, 0, 1))
    levels = np.where(np.isfinite(means), 1 + np.round(unit * (TOP - 1)), ABSENT)
    levels = np.where((levels == ABSENT) & (zeros > 0), 1, levels)
    return np.where(bads > 0, NONFINITE, levels).astype(np.uint8).T, low, high


def _binned(values: NDArray[np.generic], cuts: NDArray[np.int64]) -> Floats:
    """Return the NaN-aware mean of the rows between the cuts, `[C, R]`; NaN where all are NaN."""
    numbers = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(numbers)
    sums = np.add.reduceat(np.where(known, numbers, 0.0), cuts[:-1], axis=0)
    counts = np.add.reduceat(known, cuts[:-1], axis=0, dtype=np.int64)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
