# SPDX-License-Identifier: MIT
"""`CaseView`: the facts about a whole run, in the words in which causes are argued."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.curve import Curve
from neuraldbg.reasoning.flow import Flow
from neuraldbg.reasoning.objective import Objective, objective_of
from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    OptimizerStat,
    ParameterStat,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import Observation
    from neuraldbg.trace import Trace

    Array = NDArray[np.float64]

EARLY = 5
"""Steps that stand for "at the start": before the weights have moved far."""


class CaseView:
    """Reads a trace. Everything is computed once, when first asked for.

    Arrays are `[T, ...]`, one row per recorded step (`steps` has the labels); NaN: not measured.
    """

    def __init__(self, trace: Trace) -> None:
        """Wrap a trace, live or loaded."""
        self.trace = trace
        self.run = trace.run
        self.flow = Flow(trace.run)
        self._figures: dict[tuple[str, int], Array] = {}

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """Labels of the recorded rows."""
        return np.asarray(self.trace.facts.steps, dtype=np.int64)

    def label(self, row: int) -> int:
        """Return the step label of a row."""
        return int(self.steps[min(max(row, 0), len(self.steps) - 1)]) if len(self.steps) else 0

    def row_at(self, step: int) -> int:
        """Return the row that holds the step with this label, or the first one after it."""
        row = int(np.searchsorted(self.steps, step))
        return min(row, max(len(self.steps) - 1, 0))

    @cached_property
    def curve(self) -> Curve:
        """The main loss."""
        series = self.trace.loss
        return Curve(series.steps, series.values, self.objective.ignorant)

    @cached_property
    def objective(self) -> Objective:
        """What the main loss is."""
        return objective_of(self.trace)

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """All losses by name."""
        return {name: Curve(s.steps, s.values) for name, s in self.trace.losses.items()}

    # -- arrays ------------------------------------------------------------------------------

    def activation(self, stat: ActivationStat) -> Array:
        """Return one activation figure, `[T, L]`."""
        return self._columns("activation", stat, len(self.run.layers))

    def parameter(self, stat: ParameterStat) -> Array:
        """Return one parameter figure, `[T, P]`."""
        return self._columns("parameter", stat, len(self.run.parameters))

    def inputs(self, stat: InputStat) -> Array:
        """Return one input figure, `[T, I]`."""
        return self._columns("inputs", stat, len(self.run.inputs))

    def optimizer(self, stat: OptimizerStat) -> Array:
        """Return one optimizer figure, `[T, O]`."""
        return self._columns("optimizer", stat, len(self.run.optimizers))

    def _columns(self, block: str, stat: int, width: int) -> Array:
        """Return one figure of a block, read once; what many rules share is not to be changed."""
        key = block, int(stat)
        if key not in self._figures:
            values = _columns(getattr(self.trace.facts, block), stat, width)
            if key == ("parameter", int(ParameterStat.GRAD_STATE)):
                values = self._states(values)
            values.flags.writeable = False
            self._figures[key] = values
        return self._figures[key]

    def ledger(self, name: str) -> Array:
        """Return one field of the ledger, `[T]`."""
        from neuraldbg.trace import LEDGER_FIELDS

        facts = self.trace.facts.ledger
        return np.asarray(facts[:, list(LEDGER_FIELDS).index(name)], dtype=np.float64)

    def _states(self, values: Array) -> Array:
        """Return the states of gradients; a decimated row has the least code of its steps.

        The mean of codes is no code: NONE and NOT_STEPPED, in turn, would make NONFINITE. Steps
        with an event stay exact, so a gradient that was not finite among sound ones is not lost.
        """
        facts = self.trace.facts
        decimated = ~facts.is_exact
        if decimated.any() and values.size:
            least = facts.layout.block(facts.extremes[0], "parameter")
            values[decimated] = least[:, :, int(ParameterStat.GRAD_STATE)]
        return values

    # -- weights and gradients ---------------------------------------------------------------

    @cached_property
    def matrix_rows(self) -> NDArray[np.intp]:
        """Rows of trainable parameters with two or more dimensions that an optimizer owns."""
        owned = {name for o in self.run.optimizers for name in o.parameters}
        rows = [
            i
            for i, p in enumerate(self.run.parameters)
            if len(p.shape) > 1 and p.is_trainable and (not owned or p.name in owned)
        ]
        return np.array(rows, dtype=np.intp)

    @cached_property
    def update_ratio(self) -> Array:
        """Update RMS / weight RMS of the matrices, `[T, M]`: how far one step moves a weight."""
        update = self.parameter(ParameterStat.UPDATE_RMS)[:, self.matrix_rows]
        weight = self.parameter(ParameterStat.WEIGHT_RMS)[:, self.matrix_rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = update / weight
        initial = np.array([self.run.parameters[i].initial_rms for i in self.matrix_rows])
        ratio[:, initial == 0] = np.nan
        return np.where(np.isfinite(ratio), ratio, np.nan)

    @cached_property
    def step_size(self) -> Array:
        """Median update ratio over matrices, `[T]`."""
        return (
            quiet(np.nanmedian, self.update_ratio, axis=1)
            if self.matrix_rows.size
            else np.full(len(self.steps), np.nan)
        )

    @cached_property
    def gradient_rms(self) -> Array:
        """RMS of each parameter's gradient (norm / sqrt(size)), `[T, P]`; 0 where none."""
        norm = self.parameter(ParameterStat.GRAD_NORM)
        state = self.parameter(ParameterStat.GRAD_STATE)
        size = np.array([max(int(np.prod(p.shape)), 1) for p in self.run.parameters])
        norm = np.where((state == GradState.ZERO) | (state == GradState.NONE), 0.0, norm)
        return np.asarray(norm / np.sqrt(size), dtype=np.float64)

    @cached_property
    def gradient_total(self) -> Array:
        """Total gradient norm over all parameters, before clipping, `[T]`."""
        norm = self.parameter(ParameterStat.GRAD_NORM)
        if not norm.shape[1]:
            return np.full(len(self.steps), np.nan)
        total = np.sqrt(np.nansum(norm**2, axis=1))
        broken = (self.parameter(ParameterStat.GRAD_STATE) == GradState.NONFINITE).any(axis=1)
        missing = np.isnan(norm).all(axis=1)
        return np.where(broken, np.inf, np.where(missing, np.nan, total))

    @cached_property
    def gone(self) -> float:
        """Total gradient norm below which next to nothing comes back.

        Heuristic: 1e-6 of a loss of order 1 or more; of a smaller one, whose gradients are small by
        its units, as much less.
        """
        start = abs(self.curve.start) if self.curve else 1.0
        return 1e-6 * min(1.0, start) if np.isfinite(start) else 1e-6

    def layer_gradient(self, path: str) -> Array:
        """Return the gradient RMS of a layer's matrices, `[T]`."""
        rows = self.flow.matrices.get(path, [])
        if not rows:
            return np.full(len(self.steps), np.nan)
        return quiet(np.nanmax, self.gradient_rms[:, rows], axis=1)

    def early(self, values: Array, count: int = EARLY) -> Array:
        """Return the median over the first `count` rows that were measured, axis 0.

        Rows on which anything was not finite do not count: that is no beginning any more.
        """
        until = self.broken_row or len(values)
        return quiet(np.nanmedian, measured(values[:until])[:count], axis=0)

    def late(self, values: Array) -> Array:
        """Return the median over the measured rows of the last tenth, axis 0; of 5 at least."""
        rows = measured_rows(values)
        recent = rows[rows >= len(values) - len(values) // 10]
        return quiet(np.nanmedian, values[recent if len(recent) >= 5 else rows[-5:]], axis=0)

    @cached_property
    def lr(self) -> Array:
        """Largest learning rate over the optimizers, `[T]`; steps on which none stepped repeat."""
        lr = self.optimizer(OptimizerStat.LR)
        if not lr.shape[1]:
            return np.full(len(self.steps), np.nan)
        return quiet(np.nanmax, lr, axis=1)

    @cached_property
    def held(self) -> frozenset[str]:
        """Names of the parameters that an optimizer holds, or held."""
        return frozenset(name for one in self.run.optimizers for name in one.parameters)

    @cached_property
    def optimizer_kinds(self) -> set[str]:
        """Class names of the optimizers, lower case."""
        return {o.kind.lower() for o in self.run.optimizers}

    @cached_property
    def is_adaptive(self) -> bool:
        """Whether updates are normalised by a second moment (Adam and its like)."""
        words = ("adam", "rmsprop", "adagrad", "lion", "adadelta", "lamb", "adafactor")
        return any(word in kind for kind in self.optimizer_kinds for word in words)

    @cached_property
    def is_clipped(self) -> bool:
        """Whether the loop clips gradients on most of its steps."""
        clips = self.ledger("clips")
        return bool(len(clips)) and float(np.nanmean(clips > 0)) > 0.5

    # -- breakage ------------------------------------------------------------------------------

    @cached_property
    def broken_row(self) -> int | None:
        """First row on which a weight, gradient or layer output was not finite."""
        if not len(self.steps):
            return None
        bad = (self.activation(ActivationStat.NONFINITE) > 0).any(axis=1)
        if len(self.run.parameters):
            state = self.parameter(ParameterStat.GRAD_STATE)
            skipped = self.ledger("skipped") > 0
            bad |= (state == GradState.NONFINITE).any(axis=1) & ~skipped
        rows = np.flatnonzero(bad)
        return int(rows[0]) if len(rows) else None

    @cached_property
    def broken_step(self) -> int | None:
        """Label of the first step on which anything was not finite: loss, gradient, output."""
        found = [x for x in (self.curve.broke_at,) if x is not None]
        if self.broken_row is not None:
            found.append(self.label(self.broken_row))
        return min(found) if found else None

    @cached_property
    def is_broken(self) -> bool:
        """Whether NaN or Inf ended the run or stayed: not one bad batch that was skipped."""
        if self.curve.is_broken:
            return True
        if not len(self.steps) or not len(self.run.parameters):
            return False
        sizes = self.parameter(ParameterStat.WEIGHT_MAX)
        size, before = sizes[-1], np.isfinite(sizes[:-1]).any(axis=0)
        measured = ~np.isnan(self.parameter(ParameterStat.WEIGHT_RMS)[-1]) & before | np.isinf(size)
        return bool((~np.isfinite(size) & measured).any()) or self._ended_in_nan

    @cached_property
    def _ended_in_nan(self) -> bool:
        """Whether the user's own exception ended the run on a step that was not finite."""
        if self.trace.exception is None or self.broken_step is None:
            return False
        last = self.trace.last_step
        return last is not None and self.broken_step >= last - 1

    @cached_property
    def is_failing(self) -> bool:
        """Whether the run went wrong by its loss: broken, diverged, or ended where it began."""
        return self.is_broken or (bool(self.curve) and self.curve.is_poor)

    # -- evidence ------------------------------------------------------------------------------

    @cached_property
    def observations(self) -> dict[str, list[Observation]]:
        """Observations of capture by kind, in order of step."""
        found: dict[str, list[Observation]] = {}
        for note in self.trace.observations:
            found.setdefault(note.kind, []).append(note)
        return found

    def events(
        self,
        *,
        types: Iterable[str] = (),
        state: str | None = None,
        layers: Iterable[str | None] | None = None,
        until: int | None = None,
        most: int = 3,
    ) -> tuple[SemanticEvent, ...]:
        """Return the first events that match, as evidence of a hypothesis."""
        wanted = {str(t) for t in types}
        places = None if layers is None else set(layers)
        found = []
        for event in self.trace.events:
            if wanted and str(event.event_type) not in wanted:
                continue
            if state is not None and event.to_state != state:
                continue
            if places is not None and event.layer not in places:
                continue
            if until is not None and event.step > until:
                continue
            found.append(event)
            if len(found) >= most:
                break
        return tuple(found)


def measured(values: Array) -> Array:
    """Return the rows in which anything was measured: taps may be thinned out, losses never."""
    return values[measured_rows(values)]


def measured_rows(values: Array) -> NDArray[np.intp]:
    """Return the places of the rows that `measured` keeps."""
    absent = np.isnan(values).reshape(len(values), -1)
    return np.flatnonzero(~absent.all(axis=1))


def _columns(block: NDArray[np.float32], stat: int, width: int) -> Array:
    if block.ndim != 3 or not block.shape[1]:
        return np.full((len(block), width), np.nan)
    return np.asarray(block[:, :, int(stat)], dtype=np.float64)


def quiet(function: object, *args: object, **kwargs: object) -> Array:
    """Call a NaN-aware numpy reduction; slices without any number give NaN, not a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(function(*args, **kwargs), dtype=np.float64)  # type: ignore[operator]
