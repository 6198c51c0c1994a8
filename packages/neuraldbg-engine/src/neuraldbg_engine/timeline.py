# SPDX-License-Identifier: LicenseRef-Proprietary
"""When something began: a distribution over steps, never a bare point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
