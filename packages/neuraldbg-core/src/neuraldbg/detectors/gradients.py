# SPDX-License-Identifier: MIT
"""Gradient norms per layer, as the gradient detectors see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.schema.plain import GRADIENT, PARAMETER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.thinned import ThinnedSteps


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
        norm, missing = self._by_layer(
            facts.parameter[None, :, PARAMETER.GRAD_NORM],
            facts.parameter[None, :, PARAMETER.GRAD_STATE],
        )
        return norm[0], missing[0]

    def measure_all(
        self, steps: ThinnedSteps
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Return what `measure` does, `[T, N]` each, for the `T` steps that measured gradients.

        Their labels come last.
        """
        measured = ~np.isnan(steps.grad_state).all(axis=1)
        if not measured.any():
            nothing = np.zeros((0, len(self.names)))
            return nothing, nothing, steps.steps[:0]
        norm, missing = self._by_layer(steps.grad_norm[measured], steps.grad_state[measured])
        return norm, missing, steps.steps[measured]

    def _by_layer(
        self, norms: NDArray[np.float32], states: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sum parameters, `[T, P]`, to layers, `[T, N]`."""
        count = min(len(self._rows), norms.shape[1])
        state = states[:, :count]
        absent = (state == GRADIENT.NONE) & self._trainable[:count]
        norm = norms[:, :count].astype(np.float64)
        norm[absent | (state == GRADIENT.ZERO)] = 0.0
        norm[state == GRADIENT.NOT_STEPPED] = np.nan
        norm[state == GRADIENT.NONFINITE] = np.inf
        steps, width = len(norm), len(self.names) + 1
        rows = (self._rows[:count] + width * np.arange(steps)[:, None]).ravel()
        total, missing = (
            np.bincount(rows, weights=one.ravel(), minlength=steps * width).reshape(steps, width)
            for one in (norm * norm, absent)
        )
        return np.sqrt(total[:, :-1]), missing[:, :-1].astype(np.float64)

    @property
    def owned(self) -> NDArray[np.intp]:
        """Number of trainable parameters per layer, `[N]`."""
        return self._owned
