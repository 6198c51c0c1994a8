# SPDX-License-Identifier: MIT
"""What is usual of late: a thinned step whose loss or gradient lies beyond it is odd."""

from __future__ import annotations

import math
import sys
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

RECENT = 32
"""Losses that say what is usual."""
FEWEST = 16
"""Losses below which nothing is usual yet."""
FAR = 2.0
"""A loss that exceeds the largest of them by this many times their range is odd. Heuristic: steady
noise gets there about once in thousands of steps. Each odd step doubles it ..."""
FAR_AT_MOST = 32.0
RARE = 512
"""... and so many steps without one halve it again: where losses leap by habit, leaps are usual."""
OFTEN = 16
"""Thinned steps after which the limits are taken anew."""
NORM_FAR = 4.0
"""The same of the total gradient norm, as a factor. Heuristic: well beyond a batch's noise."""


class Usual:
    """The last losses and norms, and the limits that follow from them.

    Attributes:
        loss: from here on a recorded loss is odd; the largest finite number where too few are
            known, so that only what is not finite is odd. Any is where all recent ones lie above
            those that were recent on the last full step: the run has drifted off unseen.
        backward: the same for what backward is called on.
        norm: the same for the sum of the gradient norms; infinite where none is known.
    """

    def __init__(self) -> None:
        self.loss = self.backward = sys.float_info.max
        self.norm = math.inf
        self._losses: deque[float] = deque(maxlen=RECENT)
        self._backwards: deque[float] = deque(maxlen=RECENT)
        self._top = math.inf
        """The largest of those that were recent on the last full step."""
        self._far, self._calm = FAR, 0

    def note(self, loss: float, backwards: Iterable[float]) -> None:
        """A full step closed."""
        self._losses.append(loss)
        self._top = max(self._losses)
        self._backwards.extend(backwards)

    def note_loss(self, loss: float) -> None:
        """A thinned step closed, and its main loss was this."""
        self._losses.append(loss)
        self._calm += 1
        if self._calm % OFTEN == 0:
            self._settle()

    @property
    def steady(self) -> int:
        """How many thinned steps can be noted, at least 1, before the limits change."""
        return OFTEN - self._calm % OFTEN

    def note_backward(self, loss: float) -> None:
        """A thinned step's backward was called on this loss."""
        self._backwards.append(loss)

    def note_norms(self, norms: NDArray[np.float32]) -> None:
        """Gradient norms `[..., P]`, NaN where there are none: the largest sum is usual."""
        totals = np.nansum(np.atleast_2d(norms), axis=1)
        self.norm = NORM_FAR * float(totals.max(initial=0.0)) or math.inf
        self._settle()

    def _settle(self) -> None:
        if self._calm >= RARE:
            self._far, self._calm = max(FAR, self._far / 2), 0
        has_drifted = len(self._losses) == RECENT and min(self._losses) > self._top
        self.loss = -math.inf if has_drifted else _limit(self._losses, self._far)
        self.backward = _limit(self._backwards, self._far)

    def note_odd(self) -> None:
        """A step was odd."""
        self._far, self._calm = min(2 * self._far, FAR_AT_MOST), 0


def _limit(losses: Collection[float], far: float) -> float:
    if len(losses) < FEWEST or not all(map(math.isfinite, losses)):
        return sys.float_info.max
    top = max(losses)
    return top + far * (top - min(losses)) + 0.01 * abs(top)
