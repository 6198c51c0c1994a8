# SPDX-License-Identifier: MIT
"""Which thinned steps are heard, which are bare, and which bare ones are weighed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.budget import WEIGHED

if TYPE_CHECKING:
    from neuraldbg.capture.budget import Budget
    from neuraldbg.capture.segment import Segment

CLOCKED_EVERY = 16
"""Heard steps to one whose cost is measured: reading the thread's clock is itself dear here."""
DEAF = frozenset({"step_began", "clip_began", "clip_measured", "clip_limited"})
"""Calls of the switchboard that a bare step does without."""


class Cadence:
    """Counts thinned steps, and says how each of them is heard.

    Attributes:
        count: number of the open step among all thinned ones.
        is_bare: whether it is bare.
        is_clocked: whether its cost is measured.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.count = 0
        self.is_bare = self.is_clocked = False
        self._is_single = self._is_clipping = False

    def learn(self, heard: Segment) -> None:
        """Learn from a step of this loop whether others may be bare, and be weighed.

        Norms that clipping has changed would be taken for those before it.
        """
        named = [*heard.losses.values(), heard.backward_losses]
        self._is_single = (
            heard.forwards == heard.backwards == 1 and max(map(len, named)) == 1 >= heard.clips
        )
        self._is_clipping = heard.clips > 0

    def begin(self) -> None:
        """The next thinned step opens."""
        self.count += 1
        is_bare, is_heard = self._budget.is_bare, self.until_heard == 0
        self.is_bare = is_bare and self._is_single and not is_heard
        self.is_clocked = not self.is_bare and (is_bare or self.count % CLOCKED_EVERY == 0)

    @property
    def until_heard(self) -> int:
        """Steps until one is not bare, where most are; 0: the open one."""
        every = self._budget.heard_every
        return -self.count % (every if self._is_clipping else every * WEIGHED)

    @property
    def until_weighed(self) -> int:
        """Steps until a bare one is weighed; 0: the open one."""
        return -self.count % self._budget.heard_every

    @property
    def weighed_every(self) -> int:
        """Steps from one that is weighed, or heard, to the next."""
        return self._budget.heard_every

    @property
    def ignored(self) -> frozenset[str]:
        """Calls of the switchboard that the open step does without."""
        if not self.is_bare:
            return frozenset()
        return DEAF if self.until_weighed else DEAF - {"step_began"}
