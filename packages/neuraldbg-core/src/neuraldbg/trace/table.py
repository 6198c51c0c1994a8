# SPDX-License-Identifier: MIT
"""What readers of a trace look at: a table of facts over steps, and series of numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from neuraldbg.trace.layout import LEDGER_FIELDS, Floats, Layout

__all__ = ["LEDGER_FIELDS", "FactTable", "Series"]


@dataclass(frozen=True, eq=False, slots=True)
class Series:
    """Numbers by step, `[T]` each: exact for the first 16,384 values of a run.

    Beyond that, each value stands for `stride` neighbours: their mean where all are finite, else
    NaN or Inf, so that a number that is not finite is never averaged away.
    """

    steps: NDArray[np.int64]
    """Label of the first step that a value stands for."""
    values: NDArray[np.float64]
    stride: int = 1

    def __len__(self) -> int:
        return len(self.steps)

    def __bool__(self) -> bool:
        return len(self.steps) > 0


EMPTY_SERIES = Series(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class FactTable:
    """Everything measured, by step: `T` rows in the order in which the steps ended.

    A row is one step where `is_exact`, else the NaN-aware mean over the steps from `steps` to
    `stops`, whose extremes `low` and `high` hold. Rows of layers (`L`), parameters (`P`), inputs
    (`I`) and optimizers (`O`) follow `RunInfo`; what a step did not know yet is NaN.
    """

    layout: Layout
    matrix: Floats = field(repr=False)
    """`[T, layout.width]`: all blocks of a row side by side."""
    steps: NDArray[np.int64]
    """`[T]`, label of the first step of the row."""
    stops: NDArray[np.int64]
    """`[T]`, label of its last step: equal to `steps` where the row is exact."""
    widths: NDArray[np.int64]
    """`[T]`, how many steps a row stands for: 1 where it is exact."""
    extremes: tuple[Floats, Floats] = field(repr=False)
    """Minimum and maximum of the decimated rows alone, `[D, layout.width]` each."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def is_exact(self) -> NDArray[np.bool_]:
        """`[T]`, whether a row is one single step."""
        return np.equal(self.widths, 1)

    @property
    def activation(self) -> Floats:
        """`[T, L, len(ActivationStat)]`, a view."""
        return self.layout.block(self.matrix, "activation")

    @property
    def parameter(self) -> Floats:
        """`[T, P, len(ParameterStat)]`, a view."""
        return self.layout.block(self.matrix, "parameter")

    @property
    def inputs(self) -> Floats:
        """`[T, I, len(InputStat)]`, a view."""
        return self.layout.block(self.matrix, "inputs")

    @property
    def optimizer(self) -> Floats:
        """`[T, O, len(OptimizerStat)]`, a view."""
        return self.layout.block(self.matrix, "optimizer")

    @property
    def ledger(self) -> Floats:
        """`[T, len(LEDGER_FIELDS)]`, a view; flags are 0 and 1 (shares, where decimated)."""
        return self.layout.block(self.matrix, "ledger")[:, 0, :]

    @property
    def seconds(self) -> Floats:
        """`[T]`, wall time since the previous step ended."""
        return self.layout.block(self.matrix, "step")[:, 0, 0]

    @property
    def sampled(self) -> NDArray[np.bool_]:
        """`[T]`, whether activation taps ran (at least once, where decimated)."""
        return self.layout.block(self.matrix, "step")[:, 0, 1] > 0

    @property
    def interrupted(self) -> NDArray[np.bool_]:
        """`[T]`, whether the step never reached its optimizer (at least once, where decimated)."""
        return self.layout.block(self.matrix, "step")[:, 0, 2] > 0

    @cached_property
    def low(self) -> FactTable:
        """The same table with the minimum over each decimated row's steps."""
        return self._with(self.extremes[0])

    @cached_property
    def high(self) -> FactTable:
        """The same table with the maximum over each decimated row's steps."""
        return self._with(self.extremes[1])

    def _with(self, decimated: Floats) -> FactTable:
        matrix = self.matrix.copy()
        matrix[~self.is_exact] = decimated
        extremes = decimated, decimated
        return FactTable(self.layout, matrix, self.steps, self.stops, self.widths, extremes)
