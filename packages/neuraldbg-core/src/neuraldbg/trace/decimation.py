# SPDX-License-Identifier: MIT
"""Merging neighbouring steps into one, with NaN-aware mean, minimum, maximum and count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neuraldbg.trace.layout import Floats

if TYPE_CHECKING:
    from collections.abc import Sequence

Counts = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Bucket:
    """Consecutive steps as one row: figures `[W]` each, over the values that are not NaN.

    `first` and `last` are ordinals of steps, `first_step` and `last_step` their labels.
    """

    first: int
    last: int
    first_step: int
    last_step: int
    mean: Floats
    low: Floats
    high: Floats
    counts: Counts
    """How many values each figure summarises."""

    @property
    def width(self) -> int:
        """How many steps it stands for."""
        return self.last - self.first + 1


def exact(ordinal: int, step: int, vector: Floats) -> Bucket:
    """Return one step as a bucket."""
    return Bucket(ordinal, ordinal, step, step, vector, vector, vector, default_counts(vector, 1))


def default_counts(mean: Floats, width: int) -> Counts:
    """Return the counts where every figure is NaN on all of a bucket's steps or on none."""
    return np.where(np.isnan(mean), 0, width).astype(np.uint32)


def merge_exact(first: int, steps: Sequence[int], matrix: Floats) -> Bucket:
    """Return consecutive steps, `[T, W]`, from the ordinal `first` on, as one bucket: `merge`."""
    known = ~np.isnan(matrix)
    number = known.sum(axis=0, dtype=np.uint32)
    with np.errstate(all="ignore"):
        total = np.where(known, matrix.astype(np.float64), 0.0).sum(axis=0)
        mean = np.where(number > 0, total / number, np.nan).astype(np.float32)
    low, high = np.fmin.reduce(matrix), np.fmax.reduce(matrix)
    return Bucket(first, first + len(steps) - 1, steps[0], steps[-1], mean, low, high, number)


def merge(buckets: Sequence[Bucket]) -> Bucket:
    """Return consecutive buckets as one. The mean is computed in float64 and kept in float32."""
    counts = np.stack([bucket.counts for bucket in buckets])
    means = np.stack([bucket.mean for bucket in buckets]).astype(np.float64)
    # Infinities of both signs cancel to NaN by IEEE rules; the count says it was measured.
    with np.errstate(all="ignore"):
        total = np.where(counts > 0, means * counts, 0.0).sum(axis=0)
        number = counts.sum(axis=0, dtype=np.uint32)
        mean = np.where(number > 0, total / number, np.nan).astype(np.float32)
    first, last = buckets[0], buckets[-1]
    return Bucket(
        first.first,
        last.last,
        first.first_step,
        last.last_step,
        mean,
        np.fmin.reduce([bucket.low for bucket in buckets]),
        np.fmax.reduce([bucket.high for bucket in buckets]),
        number,
    )


def cheapest_pair(spans: Sequence[tuple[int, int]], now: int) -> int | None:
    """Return the index of the pair of neighbours whose merging loses least, or None.

    The loss is the width of the result divided by its age, so that resolution falls in proportion
    to age and a fixed number of rows covers a run of any length evenly in log time.

    Args:
        spans: (first, last) ordinal of each bucket, in order; gaps belong to exact rows.
        now: Ordinal of the step about to come.
    """
    if len(spans) < 2:
        return None
    firsts, lasts = np.array(spans, dtype=np.int64).T
    loss = (lasts[1:] - firsts[:-1] + 1) / (now - firsts[:-1])
    loss[firsts[1:] != lasts[:-1] + 1] = np.inf
    index = int(loss.argmin())
    return index if loss[index] < np.inf else None


def halve(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each pair of an even number of values; not finite where either is not."""
    with np.errstate(all="ignore"):
        return values[0::2] * 0.5 + values[1::2] * 0.5


def summary(values: Sequence[float]) -> float:
    """Return the mean of `values` in float64, by the rule of `halve`."""
    with np.errstate(all="ignore"):
        return float((np.array(values, dtype=np.float64) / len(values)).sum())


def as_floats(blob: bytes) -> NDArray[Any]:
    """Return a stored float32 vector, read-only."""
    return np.frombuffer(blob, dtype="<f4")
