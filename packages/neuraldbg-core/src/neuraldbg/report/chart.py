# SPDX-License-Identifier: MIT
"""The loss curve as coordinates of an inline SVG, with the events on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.report.text import event_line, figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.trace import Series

WIDTH, HEIGHT = 960, 260
LEFT, RIGHT, TOP, BOTTOM = 70, 12, 12, 26
MOST_POINTS = 1_500
MOST_MARKS = 200
LOG_FROM = 50.0
"""Heuristic: a curve whose largest value is 50 times its smallest is flat on a linear axis."""


@dataclass(frozen=True)
class Mark:
    """An event on the curve."""

    x: float
    step: int
    severity: str
    text: str


@dataclass(frozen=True)
class Tick:
    """A labelled place on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Chart:
    """Everything an SVG of one curve is made of, in its own coordinates."""

    lines: tuple[str, ...]
    """`points` of polylines; a gap between two is where the loss was not finite."""
    breaks: tuple[float, ...]
    """x of values that were not finite."""
    marks: tuple[Mark, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    is_log: bool
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    bottom: int = HEIGHT - BOTTOM
    right: int = WIDTH - RIGHT
    top: int = TOP


def chart(series: Series, events: Sequence[SemanticEvent]) -> Chart | None:
    """Return the chart of a series; None where nothing was recorded."""
    points = thinned([int(step) for step in series.steps], [float(v) for v in series.values])
    if not points:
        return None
    finite = [value for _, value in points if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    is_log = low > 0 and high / low >= LOG_FROM
    first, last = points[0][0], points[-1][0]
    across = _axis(first, last, LEFT, WIDTH - RIGHT)
    low_y, high_y = (math.log10(low), math.log10(high)) if is_log else (low, high)
    up = _axis(low_y, high_y, HEIGHT - BOTTOM, TOP)
    lines: list[list[str]] = [[]]
    for step, value in points:
        if math.isfinite(value):
            height = up(math.log10(value) if is_log else value)
            lines[-1].append(f"{across(step):.1f},{height:.1f}")
        elif lines[-1]:
            lines.append([])
    return Chart(
        tuple(" ".join(line) for line in lines if line),
        tuple(across(step) for step, value in points if not math.isfinite(value))[:MOST_MARKS],
        marks(events, across, first, last),
        tuple(Tick(across(at), f"{round(at):,}") for at in _even(first, last, 7)),
        tuple(Tick(up(at), figure(10**at if is_log else at)) for at in _even(low_y, high_y, 5)),
        is_log,
    )


def marks(
    events: Sequence[SemanticEvent], across: Callable[[float], float], first: float, last: float
) -> tuple[Mark, ...]:
    """Return the events to draw on the curve, the most severe first where there are too many."""
    weight = {"critical": 0, "warning": 1, "info": 2}
    inside = [event for event in events if first <= event.step <= last]
    chosen = sorted(inside, key=lambda event: weight[str(event.severity)])[:MOST_MARKS]
    return tuple(
        Mark(across(event.step), event.step, str(event.severity), event_line(event))
        for event in sorted(chosen, key=lambda event: event.step)
    )


def thinned(
    steps: Sequence[int], values: Sequence[float], most: int = MOST_POINTS
) -> list[tuple[int, float]]:
    """Return at most about `most` points that look the same.

    Each bin of neighbours keeps its smallest and its largest value, and the first that is not
    finite, at their own steps: no spike is lost.
    """
    if len(values) <= most:
        return list(zip(steps, values, strict=True))
    size = math.ceil(len(values) / (most // 2))
    kept: set[int] = {0, len(values) - 1}
    for start in range(0, len(values), size):
        places = range(start, min(start + size, len(values)))
        finite = [place for place in places if math.isfinite(values[place])]
        if finite:
            kept |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
        kept.update([place for place in places if not math.isfinite(values[place])][:1])
    return [(steps[place], values[place]) for place in sorted(kept)]


class _axis:  # noqa: N801  # called like a function
    """Values from `low` to `high` to coordinates from `start` to `stop`."""

    def __init__(self, low: float, high: float, start: float, stop: float) -> None:
        self.low, self.start = low, start
        self.slope = (stop - start) / (high - low) if high > low else 0.0

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) * self.slope, 1)


def _even(low: float, high: float, count: int) -> list[float]:
    if high <= low:
        return [low]
    return [low + (high - low) * index / (count - 1) for index in range(count)]
