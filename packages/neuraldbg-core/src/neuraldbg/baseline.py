# SPDX-License-Identifier: MIT
"""Robust baselines: what a figure usually is, and how far from it a new value lies.

Everything is vectorised over layers (the last axis), ignores NaN ("not measured"), and costs a few
microseconds per step. Scales are in the unit of the input; use logs for figures that live on a
ratio scale (norms, losses).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation -> standard deviation of a Gaussian (1 / Phi^-1(3/4))."""
SLOPE_POINTS = 200
"""Theil-Sen looks at all pairs of at most this many points: 19,900 pairs, about 0.3 ms."""


def median_mad(values: ArrayLike) -> tuple[Array, Array]:
    """Return median and scaled MAD over the first axis, NaN ignored.

    Args:
        values: `[T]` or `[T, L]`.

    Returns:
        Median and 1.4826 * MAD, each `[]` or `[L]`, in the unit of `values`; NaN where nothing
        was measured.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size and not np.isnan(data).any():
        middle = np.median(data, axis=0)
        spread = np.median(np.abs(data - middle), axis=0)
        return middle, MAD_TO_SIGMA * spread
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        middle = np.nanmedian(data, axis=0)
        spread = np.nanmedian(np.abs(data - middle), axis=0)
    return middle, MAD_TO_SIGMA * spread


def robust_z(value: ArrayLike, middle: ArrayLike, scale: ArrayLike, floor: float) -> Array:
    """Return (value - middle) / max(scale, floor); NaN where not measured.

    `floor` is the smallest scale taken for real, in the unit of `value`: a series that never moved
    has a MAD of zero, and a first tiny move is no anomaly.
    """
    size = np.maximum(np.asarray(scale, dtype=np.float64), floor)
    gap = np.asarray(value, dtype=np.float64) - np.asarray(middle, dtype=np.float64)
    return np.asarray(gap / size, dtype=np.float64)


def thin(count: int, points: int) -> NDArray[np.intp]:
    """Return at most `points` indices spread evenly over `range(count)`, first and last kept."""
    if count <= points:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, points).round().astype(np.intp))


def theil_sen(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Return the robust line through the points: median pairwise slope, median intercept.

    Breaks down only when more than 29 % of the points are outliers (Sen 1968). Long series are
    thinned evenly to `SLOPE_POINTS`; points that are not finite are ignored.

    Args:
        x: `[T]`.
        y: `[T]`.

    Returns:
        (slope, intercept); (NaN, NaN) below two usable points.
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    usable = np.isfinite(xs) & np.isfinite(ys)
    xs, ys = xs[usable], ys[usable]
    keep = thin(len(xs), SLOPE_POINTS)
    xs, ys = xs[keep], ys[keep]
    order = np.arange(len(xs))
    pairs = order[:, None] < order
    run, rise = (xs - xs[:, None])[pairs], (ys - ys[:, None])[pairs]
    apart = run != 0
    if not apart.all():
        run, rise = run[apart], rise[apart]
    if not len(run):
        return float("nan"), float("nan")
    slope = _median(rise / run)
    return slope, float(np.median(ys - slope * xs))


def _median(values: Array) -> float:
    """Return `np.median` of thousands of values, `[T]`: sorting them is the faster way to it."""
    ordered = np.sort(values)
    half = len(ordered) // 2
    middle = ordered[half - 1 + len(ordered) % 2 : half + 1]
    return float("nan") if np.isnan(ordered[-1]) else float(np.mean(middle))


def rolling_median(values: ArrayLike, window: int) -> Array:
    """Return the centred rolling median, NaN ignored, edges by shorter windows. `[T]` -> `[T]`."""
    data = np.asarray(values, dtype=np.float64)
    half = max(window, 1) // 2
    if half == 0 or len(data) == 0:
        return data.copy()
    padded = np.concatenate([np.full(half, np.nan), data, np.full(half, np.nan)])
    view = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmedian(view, axis=1))


def difference_noise(values: ArrayLike) -> float:
    """Return the step-to-step noise of a series: scaled MAD of first differences / sqrt(2).

    Slow trends cancel in differences, so a falling loss does not count as noise. NaN below three
    finite points.
    """
    data = np.asarray(values, dtype=np.float64)
    data = data[np.isfinite(data)]
    if len(data) < 3:
        return float("nan")
    return float(median_mad(np.diff(data))[1] / np.sqrt(2))


class Window:
    """Median and MAD over a sliding window, refreshed now and then.

    The median of the last `length` values per layer, recomputed every `refresh` steps (and on every
    step while fewer than `length // 4` values are in): a baseline need not be newer than a quarter
    of its window.
    """

    def __init__(self, width: int, length: int = 64, refresh: int = 16) -> None:
        """Start empty. `width`: layers; `length`, `refresh`: steps."""
        self.length, self.refresh = length, refresh
        self.values = np.full((length, width), np.nan)
        self.count = 0
        self.middle = np.full(width, np.nan)
        self.scale = np.full(width, np.nan)
        self._due = 0

    def push(self, value: Array) -> None:
        """Add one step's values, `[L]`; NaN: not measured."""
        self.values[self.count % self.length] = value
        self.count += 1
        if self.count >= self._due:
            self.middle, self.scale = median_mad(self.values[: self.count])
            self._due = self.count + (1 if self.count < self.length // 4 else self.refresh)

    @property
    def steady(self) -> int:
        """How many values can be pushed, at least 1, before `middle` and `scale` change."""
        return max(1, self._due - self.count)

    def copy(self) -> Window:
        """Return a window that goes on from here on its own."""
        twin = Window(self.values.shape[1], self.length, self.refresh)
        twin.values, twin.count, twin._due = self.values.copy(), self.count, self._due
        twin.middle, twin.scale = self.middle, self.scale
        return twin

    def score(self, value: ArrayLike, floor: float) -> Array:
        """Return robust z of `value` against the window; NaN before anything was measured."""
        return robust_z(value, self.middle, self.scale, floor)


class Ema:
    """Exponential moving average with bias correction: mean of the past, weights `decay ** age`."""

    def __init__(self, width: int, decay: float) -> None:
        """Start empty. `decay` in (0, 1): 0.9 remembers about 10 steps, 0.99 about 100."""
        self.decay = decay
        self._sum = np.zeros(width)
        self._weight = np.zeros(width)

    @property
    def value(self) -> Array:
        """The average so far, `[L]`; NaN where nothing was measured."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._sum / self._weight

    def push(self, value: Array) -> None:
        """Add one step's values, `[L]`; NaN leaves that layer's average as it is."""
        measured = np.isfinite(value)
        shrink = np.where(measured, self.decay, 1.0)
        self._sum = self._sum * shrink + np.where(measured, (1 - self.decay) * value, 0.0)
        self._weight = self._weight * shrink + np.where(measured, 1 - self.decay, 0.0)


class Cusum:
    """Two-sided CUSUM of standardised values: accumulates drift that no single step shows.

    `up` grows by `z - slack` and never falls below 0; `down` by `-z - slack`. With slack 0.5 and
    threshold 8 a shift of one sigma is found after about 16 steps, and white noise alarms about
    once in a million steps (Page 1954; Siegmund's approximation of the run length).
    """

    def __init__(self, width: int, slack: float = 0.5, clip: float = 4.0) -> None:
        """Start at zero. `clip`: the most that one step may add, in sigma: one outlier is none."""
        self.slack, self.clip = slack, clip
        self.up = np.zeros(width)
        self.down = np.zeros(width)
        self.up_since = np.zeros(width, dtype=np.int64)
        self.down_since = np.zeros(width, dtype=np.int64)
        self._count = 0

    def push(self, z: Array) -> None:
        """Add one step's standardised values, `[L]`; NaN adds nothing."""
        step = np.where(np.isfinite(z), np.clip(z, -self.clip, self.clip), 0.0)
        self._count += 1
        self.up = np.maximum(self.up + step - self.slack, 0.0)
        self.down = np.maximum(self.down - step - self.slack, 0.0)
        self.up_since = np.where(self.up > 0, self.up_since, self._count)
        self.down_since = np.where(self.down > 0, self.down_since, self._count)


def page_hinkley(values: ArrayLike, slack: float, threshold: float) -> tuple[int, int] | None:
    """Return where the mean of a series first rose: (last index before, index of the alarm).

    Offline twin of a one-sided CUSUM around the running mean (Page 1954, Hinkley 1971). `slack` and
    `threshold` are in the unit of `values`; None where nothing rose.
    """
    data = np.asarray(values, dtype=np.float64)
    usable = np.flatnonzero(np.isfinite(data))
    if len(usable) == 0:
        return None
    series = data[usable]
    means = np.cumsum(series) / np.arange(1, len(series) + 1)
    walk = np.cumsum(series - means - slack)
    lowest = np.minimum.accumulate(walk)
    alarms = np.flatnonzero(walk - lowest > threshold)
    if len(alarms) == 0:
        return None
    alarm = int(alarms[0])
    start = int(np.argmin(walk[: alarm + 1]))
    return int(usable[start]), int(usable[alarm])
