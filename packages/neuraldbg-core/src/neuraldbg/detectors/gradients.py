# SPDX-License-Identifier: MIT
"""Gradient norms per layer, as the gradient detectors see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.schema.facts import GradState, ParameterStat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo


class LayerGradients:
    """Sums parameters to their owning layers. One row per layer that owns trainable parameters."""

    def __init__(self, run: RunInfo) -> None:
        """Map `run.parameters` to the layers that own them."""
        trainable = [p for p in run.parameters if p.is_trainable]
        self.names: tuple[str, ...] = tuple(dict.fromkeys(p.layer for p in trainable))
        row = {name: i for i, name in enumerate(self.names)}
        self._rows = np.array(
            [row[p.layer] if p.is_trainable else len(self.names) for p in run.parameters],
            dtype=np.intp,
        )
        self._trainable = np.array([p.is_trainable for p in run.parameters], dtype=bool)
        self._owned = np.bincount(self._rows, minlength=len(self.names) + 1)[:-1]

    def measure(self, facts: StepFacts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (L2 norm before clipping, number of parameters without gradient), each `[N]`.

        The norm is NaN where no parameter was measured or none stepped, Inf where one of them is
        not finite.
        """
        count = min(len(self._rows), len(facts.parameter))
        rows = self._rows[:count]
        norm = facts.parameter[:count, ParameterStat.GRAD_NORM].astype(np.float64)
        state = facts.parameter[:count, ParameterStat.GRAD_STATE]
        absent = (state == GradState.NONE) & self._trainable[:count]
        norm = np.where(absent | (state == GradState.ZERO), 0.0, norm)
        norm = np.where(state == GradState.NOT_STEPPED, np.nan, norm)
        norm = np.where(state == GradState.NONFINITE, np.inf, norm)
        width = len(self.names) + 1
        total = np.bincount(rows, weights=norm * norm, minlength=width)[:-1]
        missing = np.bincount(rows, weights=absent, minlength=width)[:-1]
        return np.sqrt(total), missing.astype(np.float64)

    @property
    def owned(self) -> NDArray[np.intp]:
        """Number of trainable parameters per layer, `[N]`."""
        return self._owned
