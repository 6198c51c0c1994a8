# SPDX-License-Identifier: MIT
"""What is usual of late: a thinned step whose loss or gradient lies beyond it is odd."""

from __future__ import annotations

import math
import sys
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.schema.facts import main_loss

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from neuraldbg.schema.thinned import ThinnedSteps

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
NORM_FAR = 4.0
"""The same of the total gradient norm, as a factor. Heuristic: well beyond a batch's noise."""


class Usual:
    """The last losses and norms, and the limits that follow from them.

    Attributes:
        loss: from here on a recorded loss is odd; the largest finite number where too few are
            known, so that only what is not finite is odd.
        backward: the same for what backward is called on.
        norm: the same for the sum of the gradient norms; infinite where none is known.
    """

    def __init__(self) -> None:
        self.loss = self.backward = sys.float_info.max
        self.norm = math.inf
        self._losses: deque[float] = deque(maxlen=RECENT)
        self._backwards: deque[float] = deque(maxlen=RECENT)
        self._far, self._calm = FAR, 0

    def note(self, loss: float, backwards: Iterable[float]) -> None:
        """A full step closed."""
        self._losses.append(loss)
        self._backwards.extend(backwards)

    def note_backward(self, loss: float) -> None:
        """A thinned step's backward was called on this loss."""
        self._calm += 1
        self._backwards.append(loss)

    def note_block(self, block: ThinnedSteps) -> None:
        """Thinned steps are handed on; what they show holds for the next."""
        self._losses.extend(main_loss(one) for one in block.losses[-RECENT:])
        totals = np.nansum(block.grad_norm, axis=1)
        self.settle(float(totals.max(initial=0.0)))

    def settle(self, norm: float) -> None:
        """Take the limits anew: from the losses noted so far, and from a usual gradient norm."""
        if self._calm >= RARE:
            self._far, self._calm = max(FAR, self._far / 2), 0
        self.loss = _limit(self._losses, self._far)
        self.backward = _limit(self._backwards, self._far)
        self.norm = NORM_FAR * norm or math.inf

    def note_odd(self) -> None:
        """A step was odd."""
        self._far, self._calm = min(2 * self._far, FAR_AT_MOST), 0


def _limit(losses: Collection[float], far: float) -> float:
    if len(losses) < FEWEST or not all(map(math.isfinite, losses)):
        return sys.float_info.max
    top = max(losses)
    return top + far * (top - min(losses)) + 0.01 * abs(top)
