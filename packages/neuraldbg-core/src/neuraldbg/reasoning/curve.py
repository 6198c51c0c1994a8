# SPDX-License-Identifier: MIT
"""The loss of a whole run, read for what happened: did it learn, break, diverge, stand still?"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import difference_noise, median_mad, rolling_median, theil_sen

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

LEARNED = 0.3
"""Share of the way from the start to 0 that a non-negative loss must fall to count as learning."""
POOR = 0.15
"""Share below which the run ended about where it began."""
FITTED = 0.5
"""Share of what a constant answer scores below which what is there is no accident."""
STUCK = 0.08
"""Share below which it never left its start. Between the two, causes judge for themselves."""

THROWN = 10.0
"""Level of the first three steps over the very first loss. Heuristic: batches differ by less."""
FAR = 1000.0
"""Times its lowest level that a loss stays above to its end. Heuristic: a critic's error grows with
its values, by tens; nothing that learns ends a thousand times higher than it was."""

LONG = 8192
"""Values beyond which the curve is smoothed by blocks: reading it must not take seconds."""
PAST = 40
"""Steps that make the recent past of a jump."""
OFF = 0.5
"""Share of its width by which it must be off: what is learned leaves the band little by little."""
LASTING = 5
"""Steps whose median must be off the band of the past, so that no single batch is. Heuristic."""
STRIDE = 8
JUMP_Z = 8.0
"""Robust z of a jump. Heuristic, as for the detector of loss spikes."""
MOST_CANDIDATES = 2000


class Curve:
    """One loss series, `[T]`, with lazily computed readings. Steps are labels."""

    def __init__(self, steps: ArrayLike, values: ArrayLike, ignorant: float = float("nan")) -> None:
        """Keep the series. Values that are not finite stay in place: they are findings.

        Args:
            steps: `[T]`, labels.
            values: `[T]`.
            ignorant: Loss of the best constant answer; NaN: unknown.
        """
        self.ignorant = ignorant
        self.steps = np.asarray(steps, dtype=np.int64)
        self.values = np.asarray(values, dtype=np.float64)

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        return bool(np.isfinite(self.values).any())

    @cached_property
    def finite(self) -> Array:
        """The finite values, in order."""
        return self.values[np.isfinite(self.values)]

    @cached_property
    def broke_at(self) -> int | None:
        """Label of the first step whose loss was not finite."""
        broken = np.flatnonzero(~np.isfinite(self.values))
        return int(self.steps[broken[0]]) if len(broken) else None

    @cached_property
    def is_broken(self) -> bool:
        """Whether the run ended with losses that are not finite (a skipped batch is none)."""
        tail = self.values[-self.width :]
        return len(tail) > 0 and float(np.mean(~np.isfinite(tail))) > 0.5

    @cached_property
    def width(self) -> int:
        """Steps over which the curve is smoothed: 5 % of the run, 3 to 50."""
        return int(min(max(3, len(self.values) // 20), 50))

    @cached_property
    def smooth(self) -> Array:
        """Rolling median over `width`, NaN where nothing was finite; by blocks on long runs."""
        values = np.where(np.isfinite(self.values), self.values, np.nan)
        block = len(values) // LONG + 1
        if block == 1:
            return rolling_median(values, self.width)
        count = len(values) // block
        medians, _ = median_mad(values[: count * block].reshape(count, block).T)
        smooth = np.repeat(rolling_median(medians, 5), block)
        return np.concatenate([smooth, np.full(len(values) - len(smooth), smooth[-1])])

    @cached_property
    def noise(self) -> float:
        """Noise from step to step: the second lowest over the quarters of the run; 0 where short.

        A part that explodes has no noise to speak of, and the very calm end of a converged run is
        no yardstick for its beginning.
        """
        parts = [part for part in np.array_split(self.finite, 4) if len(part) >= 3]
        noises = sorted(difference_noise(part) for part in parts)
        return noises[min(1, len(noises) - 1)] if noises else 0.0

    @cached_property
    def start(self) -> float:
        """Level of the first steps: the median of three.

        Where the first update throws the loss far up, beyond noise, it is the first value alone.
        """
        if not len(self.finite):
            return float("nan")
        if len(self.finite) < 20:
            return self.first
        level = float(np.median(self.finite[:3]))
        if not 0 < THROWN * self.first < level:
            return level
        is_thrown = level - self.first > 6 * self.noise or self._ends_above(FAR * self.first)
        return self.first if is_thrown else level

    @cached_property
    def origin(self) -> float:
        """Level from which progress counts."""
        if np.isfinite(self.ignorant) and not self.is_signed:
            return float(min(self.start, self.ignorant))
        return self.start

    @cached_property
    def first(self) -> float:
        """The very first finite loss: before any update."""
        return float(self.finite[0]) if len(self.finite) else float("nan")

    @cached_property
    def end(self) -> float:
        """Median of the last tenth (at least 5 steps) of the finite values."""
        return float(np.median(self._tail)) if len(self._tail) else float("nan")

    @cached_property
    def _tail(self) -> Array:
        return self.finite[-max(5, len(self.finite) // 10) :]

    @cached_property
    def best(self) -> float:
        """Lowest point of the smoothed curve."""
        return float(np.nanmin(self.smooth)) if self else float("nan")

    @cached_property
    def best_at(self) -> int:
        """Index of the lowest point of the smoothed curve."""
        return int(np.nanargmin(self.smooth)) if self else 0

    @cached_property
    def is_signed(self) -> bool:
        """Whether it goes clearly below 0: then 0 is no floor, and ratios mean nothing."""
        return bool(self) and float(self.finite.min()) < -0.02 * float(np.abs(self.finite).max())

    @cached_property
    def progress(self) -> float:
        """Share of the way from its origin to the floor that the run ended with; negative: worse.

        The origin is the start, or what a constant answer scores where that is known and lower: to
        get from a wild start down to chance is no learning.

        The floor is 0 for losses that stay above it; for others it is the end itself, and progress
        is 1 where the fall exceeds ten times the noise, in proportion below.
        """
        return self._share(self.end)

    @cached_property
    def best_progress(self) -> float:
        """The same for the best point of the run."""
        return self._share(self.best)

    def _share(self, level: float) -> float:
        gain = self.origin - level
        if not np.isfinite(gain):
            return 0.0
        if self.is_signed:
            scale = max(10 * self.noise, 1e-12)
            return float(np.clip(gain / scale, -1.0, 1.0))
        return float(gain / max(abs(self.origin), 1e-12))

    @cached_property
    def learned(self) -> bool:
        """Whether the run ended clearly below its start."""
        if not self or self.is_broken:
            return False
        beyond_noise = self.origin - self.end > 2 * self.noise / np.sqrt(max(self.width, 1))
        return bool(self.progress > LEARNED and beyond_noise)

    @cached_property
    def is_stuck(self) -> bool:
        """Whether the run never got clearly below its start."""
        return bool(self) and self.best_progress < STUCK

    @cached_property
    def is_poor(self) -> bool:
        """Whether the run ended about where it began: at its start, or at what a constant scores.

        Between poor and learned lies a wide middle (a language model gets a fifth of the way in its
        first hours): there no symptom alone makes a failure. A run that begins with what it has
        learned already ends where it began too, far from what a constant scores.
        """
        stands = self.progress < POOR and not self.is_fitted
        return bool(self) and (self.is_broken or self.is_diverged or stands)

    @cached_property
    def is_fitted(self) -> bool:
        """Whether it ended far below what a constant answer scores, wherever it began."""
        return bool(self) and not self.is_broken and self.end < FITTED * self.ignorant

    @cached_property
    def is_diverged(self) -> bool:
        """Whether it ended far above where it had been, beyond noise, or not finite."""
        if not self:
            return False
        if self.is_broken:
            return True
        low = min(self.start, self.best)
        rise = self.end - low
        factor = 2.0 if not self.is_signed else 0.0
        beyond = 6 * self.noise
        if not self.is_signed and low > 0 and self._ends_above(FAR * low):
            beyond = 0.0  # a loss that has blown up is noisy up there, and never comes back
        return bool(rise > max(beyond, (factor - 1) * abs(low)) and self.end > 1.2 * self.start)

    def _ends_above(self, level: float) -> bool:
        """Whether each finite value of the last tenth lies above a level."""
        return len(self.finite) >= 20 and float(self._tail.min()) > level

    @cached_property
    def is_falling(self) -> bool:
        """Whether the last third still falls: it might only need more steps."""
        tail = self.finite[-max(len(self.finite) // 3, 8) :]
        slope, _ = theil_sen(np.arange(len(tail)), tail)
        gain = -slope * len(tail)
        return bool(
            gain > max(0.05 * abs(self.end), 2 * self.noise / np.sqrt(max(len(tail) / 4, 1)))
        )

    def level(self, first: int, last: int) -> float:
        """Return the median of the finite values with index in [first, last); NaN: none."""
        part = self.values[max(first, 0) : max(last, 0)]
        part = part[np.isfinite(part)]
        return float(np.median(part)) if len(part) else float("nan")

    def turn(self, since: int, until: int) -> int | None:
        """Return the first step in [since, until) from which on the loss is off its recent band.

        Up or down: something else is asked for from there on. None: it never leaves it at once.
        """
        values = np.where(np.isfinite(self.values), self.values, np.nan)
        places = np.searchsorted(self.steps, (since, until))
        first, last = max(int(places[0]), PAST), min(int(places[1]), len(values) - LASTING)
        if first >= last:
            return None
        windows = np.lib.stride_tricks.sliding_window_view(values, PAST)[first - PAST : last - PAST]
        after = np.lib.stride_tricks.sliding_window_view(values, LASTING)[first:last]
        with np.errstate(invalid="ignore"):
            level, low, high = np.median(after, axis=1), windows.min(axis=1), windows.max(axis=1)
            off = np.flatnonzero(np.maximum(level - high, low - level) > OFF * (high - low))
        if not len(off):
            return None
        near = first + int(off[0]) + np.arange(LASTING)
        return int(self.steps[near[np.argmax(np.abs(values[near] - values[near - 1]))]])

    @cached_property
    def jumps(self) -> list[tuple[int, float, float]]:
        """Single steps far above the recent past: (index, robust z, ratio to the median)."""
        rows = self._candidates()
        if not len(rows):
            return []
        finite = np.where(np.isfinite(self.values), self.values, np.nan)
        padded = np.concatenate([np.full(PAST, np.nan), finite])
        past = np.lib.stride_tricks.sliding_window_view(padded, PAST)[rows]
        known = (~np.isnan(past)).sum(axis=1) >= 4
        rows, past = rows[known], past[known]
        middle, scale = median_mad(past.T) if len(rows) else (np.zeros(0), np.zeros(0))
        scale = np.maximum(np.maximum(scale, 0.05 * np.abs(middle)), 1e-12)
        z = (self.values[rows] - middle) / scale
        ratio = self.values[rows] / np.maximum(np.abs(middle), 1e-12)
        return [
            (int(row), float(far), float(times))
            for row, far, times in zip(rows, z, ratio, strict=True)
            if far > JUMP_Z
        ]

    def _candidates(self) -> NDArray[np.intp]:
        """Indices that may be jumps: above the rough level of the past, taken every 8 steps."""
        values = np.where(np.isfinite(self.values), self.values, np.nan)
        padded = np.concatenate([np.full(PAST, np.nan), values])
        windows = np.lib.stride_tricks.sliding_window_view(padded, PAST)[:-1:STRIDE]
        middle, _ = median_mad(windows.T)
        rough = np.repeat(middle, STRIDE)[: len(values)]
        rough[: STRIDE + 1] = np.nanmin(values[: STRIDE + 1]) if self else np.nan
        with np.errstate(invalid="ignore"):
            high = values > rough + 0.2 * np.abs(rough)
        high[:4] = False
        return np.flatnonzero(high)[:MOST_CANDIDATES]
