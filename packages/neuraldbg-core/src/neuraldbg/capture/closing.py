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

from neuraldbg.capture import inputs, layers, readback, wiring
from neuraldbg.capture.audit import Audit
from neuraldbg.capture.budget import Budget
from neuraldbg.capture.cleared import Sentinels
from neuraldbg.capture.containment import contained
from neuraldbg.capture.flags import Flags
from neuraldbg.capture.gradients import ParameterBoard
from neuraldbg.capture.inputs import InputBoard, batch_size
from neuraldbg.capture.late import Lateness
from neuraldbg.capture.lean import Lean
from neuraldbg.capture.ledger import Ledger
from neuraldbg.capture.microscope import Microscope
from neuraldbg.capture.newcomers import Newcomers
from neuraldbg.capture.objective import is_foreign
from neuraldbg.capture.optimizers import Optimizers
from neuraldbg.capture.parts import Parts
from neuraldbg.capture.ranks import Wrapping
from neuraldbg.capture.readback import Readback
from neuraldbg.capture.renewal import Renewal
from neuraldbg.capture.running import RunningStatistics
from neuraldbg.capture.scaling import Scaling
from neuraldbg.capture.segment import Closed, Segment, merge
from neuraldbg.capture.sight import Sight
from neuraldbg.capture.statistics import Reducer
from neuraldbg.capture.taps import Board
from neuraldbg.schema.facts import ActivationStat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
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
        self.readback = Readback()
        self.board = Board(len(self.survey.layers), torch.device("cpu"))
        self.board.on_activity = self.activity
        self.reducer = Reducer(self.board, self.readback)
        tensors = self.survey.tensors
        self.parameters, self.flags = ParameterBoard(tensors, self.readback), Flags(tensors)
        self.statistics = RunningStatistics()
        self.inputs = InputBoard(self.readback)
        self.sentinels = Sentinels(self.survey.named, self.readback)
        self.microscope = Microscope(self.models)
        self.audit = Audit(self.models, self.survey, self.board, self.microscope)
        self.budget, self.ledger = Budget(settings.overhead), Ledger()
        self._first_label: int | None = None
        self.run = run.model_copy(
            update={
                "layers": tuple(layer.info for layer in self.survey.layers),
                "parameters": tuple(self.survey.parameters),
            }
        )
        self.wiring = wiring.Wiring(
            self.models, self.survey, settings, self.parameters.row_of.keys()
        )
        self.wrapping = Wrapping(self.models)
        self.parts = Parts()
        self.optimizers = Optimizers(self.survey, self.parameters, self.wiring, self.readback)
        self._device: torch.device | None = None
        self.follow()
        self.ordinal = self.label = 0
        self._group: list[Segment] = []
        self.now = Segment()
        self.is_sparse = False
        self.is_stepless = False
        self._scaling = Scaling(self.readback)
        self.is_scaler_used = False
        self.ignored: frozenset[str] = frozenset()
        """Calls that the switchboard need not make now."""
        self.lean = Lean(self)
        self._handles: list[Any] = []
        self._settled = Segment()
        """The step that was judged last."""
        self._late = Lateness()
        self.last_end_s = perf_counter()
        self._last_cpu_s = thread_time()
        self._pending: list[float] = []
        self._has_reached = self._is_clipping = self._is_alarmed = False
        self._finite_gradient = True
        self.sight = Sight(self.roots, self.models, self.survey, self.board)
        self.newcomers, self.renewal = Newcomers(), Renewal(self)
        self.board.is_compiled = self.sight.is_compiled

    def follow(self) -> None:
        """Keep figures where the model computes; it may move after the session has opened."""
        device = self.survey.tensors[0].device if self.survey.tensors else torch.device("cpu")
        if device == self._device:
            return
        self._device = device
        self.readback.drain()
        self.board.move(device)
        self.reducer.follow(self.run.layers)
        carrier = None if self.settings.sync else readback.carrier_for(device)
        self.readback.carrier, self.microscope.is_late = carrier, carrier is not None

    def complete(self) -> None:
        """Describe lazy modules, which have their shapes from the first forward on."""
        if not self.survey.complete():
            return
        infos = {layer.info.path: layer.info for layer in self.survey.layers}
        update = {
            "layers": tuple(
                infos[one.path] if one.kind.startswith("Lazy") else one for one in self.run.layers
            ),
            "parameters": tuple(self.survey.parameters),
        }
        self.run = self.run.model_copy(update=update)
        self.parameters.measure()
        self.optimizers.forget()
        self.wiring.note_identical()
        self.reducer.configure(self.run.layers)

    def renew(self, rows: Sequence[int], since: int, *, unheard: int) -> None:
        """Follow the parameters of these rows, which were replaced by the step `since`.

        So many steps since then were those of an optimizer that was not known.
        """
        self.lean.leave()
        self.label += unheard
        self.microscope.step = self.label
        self.parameters.renew(self.survey.tensors)
        self.optimizers.forget()
        self.sentinels = Sentinels(self.survey.named, self.readback)
        replaced: dict[str, list[nn.Parameter]] = {}
        for row in rows:
            path = self.survey.parameters[row].layer
            replaced.setdefault(path, []).append(self.survey.tensors[row])
        self.newcomers.note_parameters(replaced, since)

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

    def count_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        """Note an outermost training forward of the open step: its mode, its batch, what trains."""
        now = self.now
        now.forwards += 1
        if not module.training and self.wiring.is_mode_dependent(module):
            now.eval_mode_forwards += 1
        now.batch_size = max(now.batch_size, batch_size(args, kwargs))
        if self.flags.have_changed(self.survey.tensors):
            self._note_flags()

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
        if sealed.parameter is None:
            self._fill(sealed)
        self.microscope.end_step()
        self.parts.end_step()
        self.now = Segment()
        return sealed

    def _fill(self, segment: Segment) -> None:
        """Give a segment its arrays, complete once all is read back, and clear the boards."""
        start = thread_time()
        segment.is_sampled = self.board.is_on
        segment.parameter = self.parameters.take()
        segment.optimizer = self.optimizers.take()
        rows = self.inputs.take()
        self.reducer.reduce(
            with_samples=self.parameters.is_deep and self.board.is_on,
            then=lambda activation: self._filled(segment, activation, rows),
        )
        self.budget.spend(self.board.seconds + thread_time() - start)
        self.board.clear()

    def _filled(
        self, segment: Segment, activation: np.ndarray, rows: list[list[np.ndarray]]
    ) -> None:
        """The figures of a sealed segment have been read."""
        segment.activation, segment.inputs = activation, inputs.combined(rows)
        calls = activation[:, ActivationStat.CALLS]
        if segment.is_thinned:
            calls[:] = math.nan
        if self.board.is_compiled and not segment.forwards:
            segment.forwards = int(calls[calls > 0].min(initial=calls.max(initial=0)))
        is_whole = segment.backwards or self.readback.is_late
        if not is_whole and (activation[:, ActivationStat.NONFINITE] == 1).any():
            segment.observations += self.microscope.examine_forwards()

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
        seconds = perf_counter() - self.last_end_s
        closed = self._closed(group, seconds, is_interrupted=is_interrupted)
        self.label += 1
        self.microscope.step = self.label
        self.ordinal += 1
        self.readback.then(lambda: self._settle(closed))
        self.readback.ship()
        has_event, self._is_alarmed = self._is_alarmed, False
        self.audit.next_step(self.ordinal, alarm=has_event)
        now, self.last_end_s = thread_time(), perf_counter()
        self.budget.spend(now - start)
        # The training thread's own time is blind to other jobs; next to an accelerator it waits.
        is_cpu = self.board.figures.device.type == "cpu"
        total, self._last_cpu_s = now - self._last_cpu_s if is_cpu else seconds, now
        self._arm(is_on=self.budget.next_step(total, alarm=has_event))
        if not self.readback.is_late:
            self.lean.note(self._settled)
        is_lean = not (self.board.is_on or self.audit.is_due or self.readback.is_late)
        if is_lean and self.lean.can_begin(self._settled):
            self.lean.begin()

    def _closed(self, group: list[Segment], seconds: float, *, is_interrupted: bool) -> Closed:
        """Note what is known of a step as it ends, whenever its figures come."""
        self._first_label = self.label if self._first_label is None else self._first_label
        checkpointed = {self.survey.layers[i].info.path for i in self.board.checkpointed}
        self.wiring.checkpointed |= checkpointed
        audited = self.audit.settle(self.label)
        if any(s.train_mode_eval_forwards for s in group):
            audited += self.statistics.inspect(self.label)
        if self.audit.is_due_structure:
            self._learn_structure()
        self.run = self._run()
        is_whole = any(s.is_done for s in group) and any(s.backwards for s in group)
        return Closed(
            group,
            self.run,
            self.label,
            self.ordinal,
            seconds,
            audited,
            self.wrapping.take(is_whole=is_whole),
            has_optimizer=bool(self.optimizers),
            is_interrupted=is_interrupted,
        )

    def _settle(self, closed: Closed) -> None:
        """Judge a step whose figures are all here."""
        if self.readback.is_late:
            for segment in closed.group:
                segment.settle()
        self._settled = step = merge(closed.group)
        if self.ledger.is_loss_divided:  # each backward has its share of one loss
            step.backward_losses = [sum(step.backward_losses)] if step.backward_losses else []
        step.observations += self._findings(step, closed)
        for sentence in self.sight.inspect(step, closed.ordinal):
            self._warn(sentence)
        self.renewal.inspect(step)
        self.newcomers.note(self.sight.take_fresh(), closed.label)
        if self.newcomers:
            step.observations += self.newcomers.inspect(self.wiring.held)
        run = closed.run if self.readback.is_late else self.run
        if len(run.warnings) != len(self.run.warnings):
            run = run.model_copy(update={"warnings": self.run.warnings})
        is_interrupted = closed.is_interrupted
        facts = step.freeze(run, closed.label, closed.seconds, is_interrupted=is_interrupted)
        self._is_alarmed |= bool(self.on_step(facts))

    def _note_flags(self) -> None:
        """Parameters were frozen or thawed before the open step."""
        parameters, tensors = self.survey.parameters, self.survey.tensors
        found, thawed = self.flags.inspect(self.label, parameters, tensors)
        self.newcomers.note_parameters(thawed, self.label, is_thawed=True)
        self.observe(found)

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
    def move_to(self, thread: int) -> None:
        """Follow the training to this thread, where the one that it ran on has ended."""
        if any(one.ident == self.thread for one in threading.enumerate()):
            return
        self.lean.quick.spill()
        self.thread = self.board.thread = thread
        self._last_cpu_s, self.board.seconds = thread_time(), 0.0  # each thread has its own clock
        self.lean.restart_clock()

    @contained
    def go_on(self, end: float) -> None:
        """The last of some bare steps ended at `perf_counter()` time `end`: what of the next?"""
        self.lean.go_on(end)

    @property
    def current(self) -> int:
        """Label of the step that is open or has just been made."""
        return self.label + len(self.lean.quick.closed)

    @contained
    def catch_up(self) -> None:
        """Somebody asks: hand on what is held back. Only the thread that trains can."""
        here = threading.get_ident()
        if here != self.thread:
            self.move_to(here)
        if here == self.thread:
            self.lean.hand_on()
            self.readback.drain()

    def is_ours(self, loss: torch.Tensor) -> bool:
        """Whether a loss is one of the watched models, and not only of others."""
        return not is_foreign(loss, self.parameters.row_of.keys())

    @property
    def is_group_open(self) -> bool:
        """Whether segments wait for the others of their step."""
        return bool(self._group)

    def _findings(self, step: Segment, closed: Closed) -> list[Observation]:
        """What a closed step shows of the loop, the wiring and the objective."""
        label, first, wires = closed.label, self._first_label or 0, self.wiring
        optimizers = len(closed.run.optimizers)
        found = closed.audited
        uncleared = self.sentinels.uncleared if len(self.models) > 1 else None
        found += self.ledger.inspect(label, step, optimizers=optimizers, uncleared=uncleared)
        found += self.wrapping.inspect(label, step, closed.wrapped)
        if not closed.has_optimizer and step.backwards and not closed.is_interrupted:
            found += wires.unstepped(first)
            if not wires.has_foreign:
                found += self.ledger.unstepped(label, first, is_unmoved=lambda: wires.is_unmoved)
        found += wires.inspect(first, closed.ordinal, step.parameter)
        return found + (
            self._late.inspect(step, closed.run, label) if self.readback.is_late else []
        )

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
        optimizers = tuple(self.optimizers.infos)
        if self.run.optimizers == optimizers and len(self.run.inputs) == len(self.inputs.infos):
            return self.run
        return self.run.model_copy(
            update={"optimizers": optimizers, "inputs": tuple(self.inputs.infos)}
        )

    def _learn_structure(self) -> None:
        learned = self.audit.describe(self.run.layers)
        self.run = self.run.model_copy(update={"layers": learned})
        self.reducer.configure(learned)

    @contained
    def finish(self, *, has_error: bool = False) -> None:
        """Close the last step, whole or interrupted, with what only the end shows."""
        self.lean.leave()
        self.readback.drain()
        self.observe(self.wiring.finish(self._first_label or 0, self.ordinal))
        self.observe(self.ledger.stopped(self.label, self.now) if self.ordinal else ())
        for sentence in self.sight.replaced() if self.ordinal else ():
            self._warn(sentence)
        last = self._seal()
        is_whole = last.is_done or bool(self._group)
        has_trained = last.is_done or last.backwards or last.losses or last.observations
        if has_error or has_trained:  # else: a last forward to look at results
            self._group.append(last)
        group, self._group = self._group, []
        self._emit(group, is_interrupted=not is_whole)
        self.readback.drain()
