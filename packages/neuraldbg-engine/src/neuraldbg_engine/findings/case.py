# SPDX-License-Identifier: LicenseRef-Proprietary
"""`Case`: one run under examination, with everything computed once that findings share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.rank import assess_all
from neuraldbg.reasoning.view import EARLY, CaseView, quiet
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerRole
from neuraldbg_engine.findings.ruled_out import ruled_out
from neuraldbg_engine.graph import CausalGraph
from neuraldbg_engine.graph.anomalies import layer_gradient
from neuraldbg_engine.timeline import Change, Onset, change_point

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.schema.facts import InputStat, ParameterStat
    from neuraldbg.trace import Trace

    Array = NDArray[np.float64]
    Flags = NDArray[np.bool_]


class Case:
    """A trace, core's view of it, and what core's own specialists say.

    Arrays are `[T, ...]`, one row per recorded step; NaN: not measured. They are shared: read only.
    """

    def __init__(self, trace: Trace) -> None:
        """Wrap a trace, live or loaded. Nothing is read before it is asked for."""
        self.trace = trace
        self.view = CaseView(trace)
        self._kept: dict[tuple[str, int, str], Array] = {}

    @cached_property
    def assessments(self) -> tuple[Assessment, ...]:
        """What every one of core's specialists had to say, before they are weighed."""
        return tuple(assess_all(self.view))

    @cached_property
    def ruled_out(self) -> frozenset[str]:
        """Causes that the place where the first NaN or Inf was born contradicts."""
        return ruled_out(self.view)

    @cached_property
    def graph(self) -> CausalGraph:
        """The causal graph of the run, with what is anomalous in it."""
        return CausalGraph(self.trace, self.view)

    # -- arrays ------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Recorded rows: `T`."""
        return len(self.view.steps)

    def activation(self, stat: ActivationStat) -> Array:
        """Return one figure of the layers' outputs, `[T, L]`."""
        return self.view.activation(stat)

    def parameter(self, stat: ParameterStat) -> Array:
        """Return one figure of the parameters, `[T, P]`."""
        return self.view.parameter(stat)

    def inputs(self, stat: InputStat) -> Array:
        """Return one figure of the inputs, `[T, I]`."""
        return self.view.inputs(stat)

    def early(self, block: str, stat: int) -> Array:
        """Return the level of a figure in the first measured rows, `[L]`, `[P]` or `[I]`."""
        return self._level(block, int(stat), self.view.early)

    def late(self, block: str, stat: int) -> Array:
        """Return the level of a figure in the measured rows of the last tenth."""
        return self._level(block, int(stat), self.view.late)

    def _level(self, block: str, stat: int, level: Callable[[Array], Array]) -> Array:
        key = block, stat, level.__name__
        if key not in self._kept:
            values = level(getattr(self.view, block)(stat))
            values.flags.writeable = False
            self._kept[key] = values
        return self._kept[key]

    @cached_property
    def log_rms(self) -> Array:
        """Logs of the RMS of the layers' outputs, `[T, L]`; NaN where it is 0 or not finite."""
        return logs(self.activation(ActivationStat.RMS))

    @cached_property
    def worked(self) -> Flags:
        """`[T]`: whether a backward ran within the step."""
        return np.asarray(self.view.ledger("backwards") > 0, dtype=np.bool_)

    # -- gradients by layer ------------------------------------------------------------------

    @cached_property
    def chain(self) -> tuple[str, ...]:
        """Executed layers with a trainable matrix, in order; norms and embeddings left out."""
        return tuple(x.path for x in self.view.flow.weighted if x.role is not LayerRole.EMBEDDING)

    @cached_property
    def layer_gradient(self) -> Array:
        """Gradient RMS of the layers of `chain`, the largest of their matrices, `[T, W]`."""
        return layer_gradient(self.view, self.chain)

    @cached_property
    def early_gradient(self) -> Array:
        """Level of `layer_gradient` in the first measured rows, `[W]`."""
        return self.view.early(self.layer_gradient)

    @cached_property
    def late_gradient(self) -> Array:
        """Level of `layer_gradient` in the last tenth of the measured rows, `[W]`."""
        return self.view.late(self.layer_gradient)

    # -- when --------------------------------------------------------------------------------

    @cached_property
    def stops(self) -> NDArray[np.int64]:
        """Label of the last step of each row, `[T]`: the row's own where it is exact."""
        return np.asarray(self.trace.facts.stops, dtype=np.int64)

    def at(self, row: int) -> Onset:
        """Return the onset of what happened in a row: exact, or anywhere in a decimated one."""
        return Onset.within(int(self.view.steps[row]), int(self.stops[row]))

    def since(self, flags: Flags, measured: Flags | None = None) -> Onset | None:
        """Return the onset of the first row that is flagged; None where none is.

        Args:
            flags: `[T]`.
            measured: `[T]`, rows that could have been flagged; rows before the first flagged one
                that were not measured may hold the onset too. None: all.
        """
        rows = np.flatnonzero(flags)
        if not len(rows):
            return None
        row = int(rows[0])
        first = int(self.view.steps[row])
        if measured is not None:
            known = np.flatnonzero(measured[:row])
            first = int(self.stops[known[-1]]) + 1 if len(known) else int(self.view.steps[0])
        return Onset.within(min(first, int(self.stops[row])), int(self.stops[row]))

    def change(self, values: Array, *, direction: int = 0, floor: float = 0.0) -> Change | None:
        """Return the posterior of a lasting change in a figure over the rows, `[T]`."""
        return change_point(values, self.view.steps, self.stops, direction=direction, floor=floor)

    @cached_property
    def start(self) -> Onset:
        """The first step: for what was so from the beginning."""
        return Onset.exact(self.view.label(0))

    @cached_property
    def is_short(self) -> bool:
        """Whether too few steps were recorded for levels early and late to be two things."""
        return self.rows < 4 * EARLY


def logs(values: Array) -> Array:
    """Return logarithms; NaN where a value is not positive or not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(values)
    return np.where(np.isfinite(found), found, np.nan)


def middle(values: Array) -> float:
    """Return the median of what is finite; NaN where nothing is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")


def largest(values: Array) -> tuple[int, float]:
    """Return (place, value) of the largest number that is not NaN; (-1, NaN) where none is."""
    if not values.size or np.isnan(values).all():
        return -1, float("nan")
    place = int(np.nanargmax(values))
    return place, float(values[place])


def ratio(over: Array, under: Array) -> Array:
    """Return over / under, NaN where that is no number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return quiet(np.divide, over, np.where(under == 0, np.nan, under))
