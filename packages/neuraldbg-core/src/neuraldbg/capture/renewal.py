# SPDX-License-Identifier: MIT
"""Parameters that modules hold in place of those that the session opened with.

`load_state_dict(assign=True)` and `layer.weight = nn.Parameter(...)` leave every module where it
is, and none of the tensors: gradients arrive in others than those that are watched. Nothing says so
but that a backward reaches nothing, or that a parameter has no gradient any more; only then are the
modules asked what they hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.schema.plain import GRADIENT, PARAMETER

if TYPE_CHECKING:
    from neuraldbg.capture.closing import Steps
    from neuraldbg.capture.segment import Segment

PATIENCE = 1
"""Backwards in a row that reach no watched parameter before the modules are asked; doubled each
time that nothing was found. Heuristic: what trains another model in between is asked for once or
twice, and a replaced model is followed before its optimizer steps."""


class Renewal:
    """Notices that parameters were replaced, and has the session follow the new ones.

    The modules are asked after a backward, never within a forward: `functional_call` puts other
    tensors in their place for so long.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._missed, self._patience, self._since = 0, PATIENCE, 0
        self._unheard = 0
        """Steps of other optimizers since a backward reached a watched parameter."""
        self._given = np.zeros(len(steps.survey.tensors), dtype=bool)
        self._lost = 0
        self._is_due = False

    def missed(self) -> bool:
        """A backward ended and wrote no gradient of a watched parameter.

        Returns whether it was one of parameters that are followed from now on.
        """
        if not self._missed:
            self._since = self._steps.current
        self._missed += 1
        return self._missed >= self._patience and self._look()

    def reached(self) -> None:
        """A backward ended and wrote some."""
        self._missed = self._unheard = 0
        if self._is_due:
            self._since = self._steps.current
            self._look()

    def stepped(self) -> None:
        """An optimizer of no watched parameter stepped."""
        self._unheard += 1

    def inspect(self, step: Segment) -> None:
        """Look on a closed full step whether more parameters than ever lost their gradient."""
        if step.parameter is None or step.is_thinned or not step.backwards:
            return
        state = step.parameter[:, PARAMETER.GRAD_STATE]
        has = np.isin(state, (GRADIENT.PRESENT, GRADIENT.ZERO, GRADIENT.NONFINITE))
        self._given |= has
        lost = int((self._given & ~has).sum())
        self._is_due |= lost > self._lost
        self._lost = max(lost, self._lost)

    def _look(self) -> bool:
        rows = self._steps.survey.renew()
        self._missed, self._is_due = 0, False
        if rows:
            self._patience = PATIENCE
            self._given[rows] = False
            self._lost = 0
            self._steps.renew(rows, self._since, unheard=self._unheard)
            self._unheard = 0
        else:
            self._patience *= 2
        return bool(rows)
