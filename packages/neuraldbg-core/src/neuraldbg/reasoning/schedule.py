# SPDX-License-Identifier: MIT
"""The history of the learning rate: where it fell, in which shape, and what the loss did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.curve import LEARNED
from neuraldbg.reasoning.symptoms import LEAP, Leap

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

GONE = 0.05
"""Share of the peak below which the lr counts as gone; a cosine gets there at 86 % of its way."""
EARLY_SHARE = 0.5
"""Share of the run before which it must be gone: planned decays end with the run."""


@dataclass(frozen=True)
class Decay:
    """An lr that was gone long before the run ended."""

    peak: float
    last: float
    first_drop: int
    """First row on which the lr was below 95 % of its peak, after the peak."""
    gone: int
    """First row on which it was below 10 % of its peak."""
    shape: str
    """`staircase`, `geometric`, `smooth` or `swinging`."""
    gain_before: float
    """Fall of the loss per row in the last half of the lr's life, as a share of the start."""
    gain_after: float
    """The same from `gone` on."""


def early_decay(view: CaseView) -> Decay | None:
    """Return the decay that starved the run, None where the lr lived or the run was done."""
    lr = view.lr
    known = np.flatnonzero(np.isfinite(lr))
    if len(known) < 20:
        return None
    lr = np.interp(np.arange(len(lr)), known, lr[known])
    peak_row, peak = int(np.argmax(lr)), float(lr.max())
    if peak <= 0:
        return None
    low = np.flatnonzero(lr[peak_row:] < 0.1 * peak) + peak_row
    gone = np.flatnonzero(lr[peak_row:] < GONE * peak) + peak_row
    if not len(gone) or gone[0] > EARLY_SHARE * len(lr):
        return None
    dead_share = float(np.mean(lr[gone[0] :] < 0.1 * peak))
    swinging = dead_share < 0.9
    if swinging and not _swings(lr, peak):
        return None
    drops = np.flatnonzero(lr[peak_row:] < 0.95 * peak) + peak_row
    curve = view.curve
    at = int(np.searchsorted(curve.steps, view.label(int(low[0]))))
    near = max(2, min(at // 4, 10))
    middle = curve.level(at - near, at + near)
    half = curve.level(at // 2 - near, at // 2 + near)
    scale = max(abs(curve.start), 1e-12)
    return Decay(
        peak,
        float(lr[-1]),
        int(drops[0]),
        int(low[0]),
        "swinging" if swinging else _shape(lr[peak_row : int(gone[0]) + 1]),
        (half - middle) / scale / max(at - at // 2, 1),
        (middle - curve.end) / scale / max(len(curve) - at, 1),
    )


def _swings(lr: np.ndarray, peak: float) -> bool:
    """Whether the lr goes from peak to nothing and back smoothly: a cosine past its end."""
    moves = np.diff(lr)
    rises = moves > 0
    return bool(rises.any()) and float(moves.max()) < 0.4 * peak


def _shape(lr: np.ndarray) -> str:
    moves = np.flatnonzero(np.abs(np.diff(lr)) > 1e-3 * np.maximum(lr[:-1], 1e-30))
    if len(moves) < 0.6 * max(len(lr) - 1, 1):
        return "staircase"
    ratio = lr[1:] / np.maximum(lr[:-1], 1e-30)
    return "geometric" if float(np.std(ratio)) < 0.01 else "smooth"


CLIMB, AT_LEAST = 0.1, 50
"""Share of the run, and steps, within which a climb is steep. Heuristic: schedules rise within a
tenth of a run; of one that rises more slowly each lr was proven by the steps before it."""


def lr_climb(view: CaseView, departure: int | None) -> Leap | None:
    """Return the climb of the lr, far above all before, on which a run that had learned was lost.

    A warmup starts with the run: there is no lr before it with which anything was learned.

    Args:
        view: The run.
        departure: The row on which its loss left for good.
    """
    lr, curve = view.lr, view.curve
    if departure is None or not np.isfinite(lr[departure]) or curve.is_signed:
        return None
    span = max(CLIMB * float(view.steps[-1] - view.steps[0]), AT_LEAST)
    start = int(np.searchsorted(view.steps, view.label(departure) - span))
    known = lr[:start][np.isfinite(lr[:start])]
    index = int(np.searchsorted(curve.steps, view.label(start)))
    level = curve.level(index - 10, index)
    if index < AT_LEAST or not len(known) or not level < (1 - LEARNED) * curve.origin:
        return None
    before = float(known.max())
    higher = np.flatnonzero(lr[start : departure + 1] > LEAP * before)
    if not len(higher):
        return None
    ratio = curve.level(len(curve) - 10, len(curve)) / max(level, 1e-12)
    return Leap(start + int(higher[0]), before, float(lr[departure]), ratio)
