# SPDX-License-Identifier: MIT
"""How the open step closes: its segments merged, its boards read, its facts handed on.

A record closes lazily, at the first activity after its optimizer stepped, so that a loss recorded
after the step still belongs to it. See `segment` for loops with several optimizers.
"""

from __future__ import annotations

import logging
import math
import threading
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture import layers, wiring
from neuraldbg.capture.audit import Audit
from neuraldbg.capture.budget import Budget
from neuraldbg.capture.cleared import Sentinels
from neuraldbg.capture.containment import contained
from neuraldbg.capture.gradients import ParameterBoard
from neuraldbg.capture.inputs import InputBoard
from neuraldbg.capture.lean import Lean
from neuraldbg.capture.ledger import Ledger
from neuraldbg.capture.microscope import Microscope
from neuraldbg.capture.objective import is_foreign
from neuraldbg.capture.optimizers import Optimizers
from neuraldbg.capture.parts import Parts
from neuraldbg.capture.ranks import Wrapping
from neuraldbg.capture.segment import Segment, merge
from neuraldbg.capture.sight import Sight
from neuraldbg.capture.statistics import Reducer
from neuraldbg.capture.taps import Board
from neuraldbg.schema.facts import ActivationStat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from neuraldbg.schema.facts import Observation, StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.thinned import ThinnedSteps
    from neuraldbg.settings import Settings

logger = logging.getLogger("neuraldbg")


class Steps:
    """Owns the boards and the open step; hands `StepFacts` to `on_step`."""

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        settings: Settings,
        run: RunInfo,
        on_step: Callable[[StepFacts], bool],
        on_thinned: Callable[[ThinnedSteps], bool],
        on_failure: Callable[[str, Exception], None],
    ) -> None:
        self.thread = threading.get_ident()
        self.settings = settings
        self.roots = dict(models)
        """The modules as the user calls them: wrappers of compile, DDP and the like included."""
        self.models = {name: layers.unwrap(model) for name, model in models.items()}
        self.survey = layers.survey(self.models, settings.frozen)
        self.on_step, self.on_thinned, self.on_failure = on_step, on_thinned, on_failure
        self.is_off = False
        device = next((t.device for t in self.survey.tensors), torch.device("cpu"))
        self.board = Board(len(self.survey.layers), device)
        self.board.on_activity = self.activity
        self.reducer = Reducer(self.board)
        self.parameters = ParameterBoard(self.survey.tensors)
        self.inputs = InputBoard()
        self.sentinels = Sentinels(self.survey.tensors)
        self.microscope = Microscope(self.models, sync=settings.sync)
        self.audit = Audit(self.models, self.survey, self.board, self.microscope)
        self.budget = Budget(settings.overhead)
        self.ledger = Ledger()
        self._first_label: int | None = None
        self.run = run.model_copy(
            update={
                "layers": tuple(layer.info for layer in self.survey.layers),
                "parameters": tuple(self.survey.parameters),
            }
        )
        self.wiring = wiring.Wiring(self.models, self.survey, settings)
        self.wrapping = Wrapping(self.models)
        self.parts = Parts()
        self.optimizers = Optimizers(self.survey, self.parameters, self.wiring)
        self.reducer.configure(self.run.layers)
        self.ordinal = 0
        self.label = 0
        self._group: list[Segment] = []
        self.now = Segment()
        self.is_sparse = False
        self.is_stepless = False
        self._scaled: dict[str, Any] = {"scale": 1.0, "is_scaled": False}
        self.is_scaler_used = False
        self.ignored: frozenset[str] = frozenset()
        """Calls that the switchboard need not make now."""
        self.lean = Lean(self)
        self._handles: list[Any] = []
        self.last_end_s = perf_counter()
        self._last_cpu_s = thread_time()
        self._pending: list[float] = []
        self._has_reached = False
        self._is_clipping = False
        self._finite_gradient = True
        self.sight = Sight(self.roots, self.models, self.survey, self.board)
        self.board.is_compiled = self.sight.is_compiled

    @contained
    def activity(self) -> None:
        """Training work begins: close the step before it where it is over."""
        if not self.now.is_done:
            self.board.is_awaiting = False
            return
        if self.lean.is_on and self.lean.close():
            self.board.is_awaiting = False
            return
        has_loss = bool(self.now.losses or any(s.losses for s in self._group))
        if has_loss or self.is_sparse:
            self.close()
        else:
            self._group.append(self._seal())
        self.board.is_awaiting = False

    def observe(self, found: Sequence[Observation] | None) -> None:
        """Note on the open step what was found."""
        if found:
            self.now.observations += found

    def _close_unstepped(self) -> None:
        """Gradients were cleared without a step: what came before them was a step of its own."""
        if self.now.backwards:
            later = Segment(forwards=1, batch_size=self.now.batch_size, losses={}, metrics={})
            self.now.forwards = max(0, self.now.forwards - 1)
            self._emit([*self._group, self._seal()])
            self._group, self.now = [], later
            self.is_stepless = True

    def _seal(self) -> Segment:
        """Fill the arrays of the open segment and start a new one."""
        sealed = self.now
        if sealed.activation is None:
            self._fill(sealed)
        self.microscope.end_step()
        self.parts.end_step()
        self.now = Segment()
        return sealed

    def _fill(self, segment: Segment) -> None:
        """Give a segment its arrays and clear the boards."""
        start = thread_time()
        is_deep = self.parameters.is_deep
        segment.is_sampled = self.board.is_on
        segment.activation = self.reducer.reduce(with_samples=is_deep and self.board.is_on)
        if segment.is_thinned:
            segment.activation[:, ActivationStat.CALLS] = math.nan
        segment.parameter = self.parameters.values.copy()
        segment.inputs = self.inputs.values()
        segment.optimizer = self.optimizers.take()
        if self.board.is_compiled and not segment.forwards:
            calls = segment.activation[:, ActivationStat.CALLS]
            segment.forwards = int(calls[calls > 0].min(initial=calls.max(initial=0)))
        if not segment.backwards and (segment.activation[:, ActivationStat.NONFINITE] == 1).any():
            segment.observations += self.microscope.examine_forwards()
        self.parameters.clear()
        self.inputs.clear()
        self.budget.spend(self.board.seconds + thread_time() - start)
        self.board.clear()

    @contained
    def close(self) -> None:
        """Emit the open step."""
        if self.lean.is_on and self.lean.close():
            return
        group = [*self._group, self._seal()]
        self._group = []
        self._emit(group)

    def _emit(self, group: list[Segment], *, is_interrupted: bool = False) -> None:
        group = [s for s in group if not s.is_empty]
        if not group:
            return
        start = thread_time()
        step = merge(group)
        if self.ledger.is_loss_divided:  # each backward has its share of one loss
            step.backward_losses = [sum(step.backward_losses)] if step.backward_losses else []
        step.observations += self._findings(step, is_interrupted=is_interrupted)
        for sentence in self.sight.inspect(step, self.ordinal):
            self._warn(sentence)
        if self.audit.is_due_structure:
            self._learn_structure()
        self.run = self._run()
        seconds = perf_counter() - self.last_end_s
        facts = step.freeze(self.run, self.label, seconds, is_interrupted=is_interrupted)
        self.label += 1
        self.microscope.step = self.label
        self.ordinal += 1
        has_event = self.on_step(facts)
        self.audit.next_step(self.ordinal, alarm=bool(has_event))
        now, self.last_end_s = thread_time(), perf_counter()
        self.budget.spend(now - start)
        # The training thread's own time is blind to other jobs; next to an accelerator it waits.
        is_cpu = self.board.figures.device.type == "cpu"
        total, self._last_cpu_s = now - self._last_cpu_s if is_cpu else seconds, now
        self._arm(is_on=self.budget.next_step(total, alarm=bool(has_event)))
        self.lean.note(step)
        if not self.board.is_on and not self.audit.is_due and self.lean.can_begin(step):
            self.lean.begin()

    def _arm(self, *, is_on: bool) -> None:
        """Decide what of the step to come is measured."""
        self.board.is_on = self.parameters.is_sampling = is_on
        self.parameters.is_deep = self.inputs.is_deep = self.budget.is_deep and is_on

    def open_full(self, *, is_on: bool) -> None:
        """A thinned step was held back, and the next one is a full one, or audited."""
        self.audit.next_step(self.ordinal, alarm=self.budget.is_alarmed)
        self._last_cpu_s = thread_time()
        self._arm(is_on=is_on)

    @contained
    def catch_up(self) -> None:
        """Somebody asks: hand on what is held back. Only the thread that trains can."""
        if threading.get_ident() == self.thread:
            self.lean.hand_on()

    def is_ours(self, loss: torch.Tensor) -> bool:
        """Whether a loss is one of the watched models, and not only of others."""
        return not is_foreign(loss, self.parameters.row_of.keys())

    @property
    def is_group_open(self) -> bool:
        """Whether segments wait for the others of their step."""
        return bool(self._group)

    def _findings(self, step: Segment, *, is_interrupted: bool) -> list[Observation]:
        """What a closed step shows of the loop, the wiring and the objective."""
        label, wires = self.label, self.wiring
        self._first_label = first = label if self._first_label is None else self._first_label
        wires.checkpointed |= {self.survey.layers[i].info.path for i in self.board.checkpointed}
        found = self.audit.settle(label)
        found += self.ledger.inspect(label, step, optimizers=len(self.optimizers.infos))
        found += self.wrapping.inspect(label, step)
        if not self.optimizers and step.backwards and not is_interrupted:
            found += wires.unstepped(first)
            if not wires.has_foreign:
                found += self.ledger.unstepped(label, first)
        return found + wires.inspect(first, self.ordinal, step.parameter)

    def _warn(self, sentence: str) -> None:
        """Say once, in the log and in the trace, what of the run cannot be watched."""
        if sentence in self.run.warnings:
            return
        logger.warning(sentence)
        warnings = (*self.run.warnings, sentence)
        self.run = self.run.model_copy(update={"warnings": warnings})

    def _run(self) -> RunInfo:
        if self.board.problems:
            rows = self.board.problems
            paths = ", ".join(repr(self.run.layers[row].path) for row in sorted(rows)[:8])
            count = f"{len(rows)} layers" if len(rows) > 1 else "1 layer"
            sentence = f"{count} not measured any more ({paths}): {next(iter(rows.values()))}"
            self.board.problems = {}
            self._warn(sentence)
        if len(self.run.optimizers) == len(self.optimizers.infos) and len(self.run.inputs) == len(
            self.inputs.infos
        ):
            return self.run
        return self.run.model_copy(
            update={"optimizers": tuple(self.optimizers.infos), "inputs": tuple(self.inputs.infos)}
        )

    def _learn_structure(self) -> None:
        learned = self.audit.describe(self.run.layers)
        self.run = self.run.model_copy(update={"layers": learned})
        self.reducer.configure(learned)

    @contained
    def finish(self, *, has_error: bool = False) -> None:
        """Close the last step, whole or interrupted, with what only the end shows."""
        self.lean.leave()
        self.observe(self.wiring.finish(self._first_label or 0, self.ordinal))
        for sentence in self.sight.replaced() if self.ordinal else ():
            self._warn(sentence)
        last = self._seal()
        is_whole = last.is_done or bool(self._group)
        has_trained = last.is_done or last.backwards or last.losses or last.observations
        if has_error or has_trained:  # else: a last forward to look at results
            self._group.append(last)
        group, self._group = self._group, []
        self._emit(group, is_interrupted=not is_whole)
