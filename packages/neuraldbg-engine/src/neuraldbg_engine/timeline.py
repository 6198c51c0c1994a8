# SPDX-License-Identifier: LicenseRef-Proprietary
"""When something began: a distribution over steps, never a bare point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import difference_noise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

TAIL = 1e-4
"""Share of the heaviest span's weight below which a span is left out. Heuristic: a thousand such
spans together would still weigh less than the interval leaves outside."""
LEAST = 1e-9
"""Weights are rounded to this, so that the same trace gives the same digits everywhere."""


@dataclass(frozen=True)
class Onset:
    """A distribution over the first bad step.

    Probability stands on spans of steps, in order: a span is one step where the trace is exact, and
    all steps of a row where it is decimated, with the weight spread evenly over them.

    Example:
        >>> onset = Onset.within(100, 103, best=101)
        >>> onset.best, onset.interval(0.9), Onset.exact(7).interval()
        (101, (100, 103), (7, 7))
    """

    steps: tuple[int, ...]
    """First step of each span, increasing."""
    weights: tuple[float, ...]
    """Probability of each span; they sum to 1."""
    stops: tuple[int, ...] = ()
    """Last step of each span; empty: each is one step."""

    def __post_init__(self) -> None:
        """Refuse what is no distribution."""
        if not self.steps or len(self.steps) != len(self.weights):
            raise ValueError(f"{len(self.steps)} spans with {len(self.weights)} weights")
        if self.stops and len(self.stops) != len(self.steps):
            raise ValueError(f"{len(self.steps)} spans with {len(self.stops)} stops")
        if not math.isclose(sum(self.weights), 1.0, abs_tol=1e-6):
            raise ValueError(f"weights sum to {sum(self.weights)!r}, not to 1")

    @classmethod
    def exact(cls, step: int) -> Onset:
        """Return the onset of what is known to the step: a call, an operation, a batch."""
        return cls((int(step),), (1.0,))

    @classmethod
    def within(cls, first: int, last: int, best: int | None = None) -> Onset:
        """Return an onset somewhere in [first, last], most probably at `best`.

        Triangular around `best` (at most 64 spans), flat where it is None.
        """
        if first >= last:
            return cls.exact(last if best is None else best)
        edges = np.unique(np.linspace(first, last + 1, min(last - first + 1, 64) + 1).astype(int))
        starts, stops = edges[:-1], edges[1:] - 1
        if best is None:
            weights = (stops - starts + 1).astype(float)
        else:
            reach = np.where(starts + stops < 2 * best, best - first + 1, last - best + 1)
            near = 1 - np.abs((starts + stops) / 2 - best) / np.maximum(reach, 1)
            weights = np.maximum(near, 0.0) * (stops - starts + 1) + 1e-6
        return cls.of(starts, weights, stops)

    @classmethod
    def of(
        cls,
        steps: Sequence[int] | np.ndarray,
        weights: Sequence[float] | np.ndarray,
        stops: Sequence[int] | np.ndarray | None = None,
    ) -> Onset:
        """Return the distribution with these weights, scaled to 1 and rid of its far tails."""
        mass = np.asarray(weights, dtype=np.float64)
        keep = mass > TAIL * mass.max()
        mass = np.round(mass[keep] / mass[keep].sum(), 9)
        mass = np.maximum(mass, LEAST)
        spans = np.asarray(steps)[keep]
        ends = spans if stops is None else np.asarray(stops)[keep]
        return cls(
            tuple(int(s) for s in spans),
            tuple(float(w) for w in mass / mass.sum()),
            () if np.array_equal(spans, ends) else tuple(int(s) for s in ends),
        )

    @property
    def _ends(self) -> tuple[int, ...]:
        return self.stops or self.steps

    @property
    def best(self) -> int:
        """The most probable step: the middle of the heaviest span; the first of equals."""
        at = max(range(len(self.steps)), key=lambda i: (self.weights[i], -i))
        return (self.steps[at] + self._ends[at]) // 2

    def interval(self, mass: float = 0.9) -> tuple[int, int]:
        """Return (first, last) of the shortest run of spans that holds `mass` of the probability.

        Example:
            >>> Onset((1, 2, 3), (0.05, 0.9, 0.05)).interval(0.9)
            (2, 2)
        """
        total = np.concatenate([[0.0], np.cumsum(self.weights)])
        last = np.searchsorted(total, total[:-1] + min(mass, 1.0) - 1e-9)
        best: tuple[int, int, int] | None = None
        for first, stop in enumerate(last):
            if stop >= len(total):
                break
            lo, hi = self.steps[first], self._ends[max(int(stop) - 1, first)]
            if best is None or hi - lo < best[0]:
                best = hi - lo, lo, hi
        return (best[1], best[2]) if best else (self.steps[0], self._ends[-1])

    def is_before(self, other: Onset, sure: float = 0.9) -> bool:
        """Whether this one began before the other with a probability of at least `sure`.

        Within a span that both share, each is first with the same probability.
        """
        return self.lead(other) >= sure

    def lead(self, other: Onset) -> float:
        """Return the probability that this one began before the other; ties count half."""
        if self._ends[-1] < other.steps[0]:
            return 1.0
        if other._ends[-1] < self.steps[0]:
            return 0.0
        if self == other:
            return 0.5
        mine = (np.array(self.steps) + np.array(self._ends)) / 2
        theirs = (np.array(other.steps) + np.array(other._ends)) / 2
        total = np.concatenate([[0.0], np.cumsum(other.weights)])
        after = 1 - total[np.searchsorted(theirs, mine, side="right")]
        ties = (
            total[np.searchsorted(theirs, mine, side="right")]
            - total[np.searchsorted(theirs, mine, side="left")]
        )
        return float(np.dot(self.weights, after + ties / 2))


def earliest(onsets: Iterable[Onset]) -> Onset | None:
    """Return the onset whose most probable step is the first; None of none."""
    return min(onsets, key=lambda onset: (onset.best, onset.interval()), default=None)


@dataclass(frozen=True)
class Change:
    """A lasting change of a series: when, how sure, from where to where."""

    onset: Onset
    evidence: float
    """Log of the odds for a change against none (BIC), in nats; positive: rather a change."""
    before: float
    """Mean level before it, in the unit of the series."""
    after: float
    """Mean level from it on."""


FEWEST = 6
"""Values below which no change is looked for."""
ISOLATED = 8.0
"""Distance of a single value from both neighbours, in sigma, from which it is an outlier."""
PARAMETERS = 3
"""Of a change: level before, size, place."""


def change_point(
    values: ArrayLike,
    steps: ArrayLike,
    stops: ArrayLike | None = None,
    *,
    direction: int = 0,
    floor: float = 0.0,
) -> Change | None:
    """Return the posterior of a single lasting change in a noisy series.

    Two kinds of change are weighed against one another: a jump to another level, and a bend from
    which on it grows or falls in proportion to time. Level, size and noise are unknown and
    integrated out under flat priors (Smith 1975, "A Bayesian approach to inference about a
    change-point"); each step is as probable as any other before the data speak. A row that stands
    for many steps counts as one value and spreads its probability over all of them, rows in which
    nothing was measured add theirs to the next one, and noise that is correlated from value to
    value counts for less, so decimation and noise widen the answer.

    Args:
        values: `[T]`; NaN and Inf: not measured. Logs, for figures on a ratio scale.
        steps: `[T]`, label of the first step of each row.
        stops: `[T]`, of the last one; None: rows are single steps.
        direction: 1: only rises, -1: only falls, 0: either.
        floor: Smallest noise believed, in the unit of `values`.

    Returns:
        None below `FEWEST` values, or where nothing moved in the direction.
    """
    data = np.asarray(values, dtype=np.float64)
    usable = np.isfinite(data)
    if usable.sum() < FEWEST:
        return None
    firsts = np.asarray(steps, dtype=np.int64)[usable]
    lasts = firsts if stops is None else np.asarray(stops, dtype=np.int64)[usable]
    series = _without_outliers(data[usable])
    opens = np.concatenate([firsts[:1], lasts[:-1] + 1])
    times = (firsts + lasts) / 2
    size, level, squares = _fits(series, times - times[0], floor)
    fitting = np.sign(size) == direction if direction else size != 0
    fitting[:, 0] = False
    if not fitting.any():
        return None
    count = len(series)
    best = np.unravel_index(np.argmin(np.where(fitting, squares, np.inf)), squares.shape)
    share = _independent(series, times, best, size[best], floor)
    after = count - np.arange(count)
    shape = np.log(np.maximum(np.arange(count), 1)) + np.log(after)
    logs = -0.5 * shape - 0.5 * share * (count - 2) * np.log(squares)
    logs = np.where(fitting, logs, -np.inf)
    weights = np.exp(logs - logs.max()).sum(axis=0) * np.maximum(lasts - opens + 1, 1)
    none = float(((series - series.mean()) ** 2).sum() + count * floor**2)
    odds = 0.5 * share * count * math.log(max(none, 1e-300) / float(squares[best]))
    at = int(best[1])
    return Change(
        Onset.of(opens, weights, lasts),
        odds - 0.5 * PARAMETERS * math.log(count),
        float(level[best]),
        float(series[at:].mean()),
    )


def _without_outliers(series: Array) -> Array:
    """Return the series with single values far from both neighbours put back between them."""
    noise = difference_noise(series)
    if len(series) < 3 or not noise > 0:
        return series
    near = np.median([series[:-2], series[1:-1], series[2:]], axis=0)
    inner = series[1:-1]
    kept = np.where(np.abs(inner - near) > ISOLATED * noise, near, inner)
    return np.concatenate([series[:1], kept, series[-1:]])


def _fits(series: Array, times: Array, floor: float) -> tuple[Array, Array, Array]:
    """Return size, level before and residual sum of squares per kind and place, `[2, T]` each.

    Least squares of `level + size * shape`, where shape is 1 from the place on (a jump), or the
    time since then (a bend). All places at once, by sums over what follows each.
    """
    count = len(series)
    centred = series - series.mean()
    unit = (times[-1] - times[0]) / max(count - 1, 1)
    moments = np.stack([np.ones(count), times, times**2, centred, times * centred])
    follow = np.cumsum(moments[:, ::-1], axis=1)[:, ::-1]
    origin = times - unit
    shapes = np.stack([follow[0], follow[1] - origin * follow[0]])
    squared = np.stack([follow[0], follow[2] - 2 * origin * follow[1] + origin**2 * follow[0]])
    crossed = np.stack([follow[3], follow[4] - origin * follow[3]])
    spread = np.maximum(squared - shapes**2 / count, 1e-12 * squared + 1e-300)
    size = crossed / spread
    total = float((centred**2).sum())
    rest = np.maximum(total - crossed**2 / spread, 1e-10 * total) + count * floor**2 + 1e-300
    level = series.mean() - size * shapes / count
    return size, level, rest


def _independent(
    series: Array, times: Array, best: tuple[np.intp, ...], size: float, floor: float
) -> float:
    """Return the share of the values that count as independent, by the lag-1 correlation.

    An AR(1) series of `n` values says as much about its mean as `n (1 - r) / (1 + r)` independent
    ones (Bartlett 1946). The least noise believed is white.
    """
    kind, at = int(best[0]), int(best[1])
    after = np.arange(len(series)) >= at
    unit = (times[-1] - times[0]) / max(len(series) - 1, 1)
    shape = after * (1.0 if kind == 0 else times - times[at] + unit)
    rest = series - size * shape
    rest = rest - rest.mean()
    total = float(((series - series.mean()) ** 2).sum())
    power = float((rest**2).sum()) + len(series) * floor**2 + 1e-9 * total
    if power <= 0:
        return 1.0
    correlation = float((rest[1:] * rest[:-1]).sum()) / power
    correlation = min(max(correlation, 0.0), 0.95)
    return (1 - correlation) / (1 + correlation)
