# SPDX-License-Identifier: MIT
"""Thinned steps: heard at the cost of some microseconds, kept, and handed on in bulk.

On a thinned step the hooks of the layers are off the modules. The loss and the gradients are still
looked at for NaN and Inf before the weights move, and the microscope has what it needs to run the
step again. Where even that exceeds the budget, most thinned steps are *bare*: the loss, the lr, the
mode and one early gradient are looked at, and what entered the model is at hand until the step
closes. Some of these are *weighed*: the norms of all gradients are taken too.

Steps wait in a block until it is full, the next full step comes, anything is asked of the session,
or `HELD_S` is over. A step on which anything is odd is never held back: it closes as any other,
with what was heard of it.
"""

from __future__ import annotations

import math
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture import wiring
from neuraldbg.capture.cadence import Cadence
from neuraldbg.capture.containment import switch_off
from neuraldbg.capture.gradients import ABSENT
from neuraldbg.capture.held import Held, counts
from neuraldbg.capture.quick import Bare, Quick
from neuraldbg.capture.rack import Rack
from neuraldbg.capture.segment import Segment
from neuraldbg.capture.sentry import Sentry, rate, settings
from neuraldbg.capture.usual import Usual
from neuraldbg.schema.facts import ParameterStat, main_loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from neuraldbg.capture.closing import Steps
    from neuraldbg.capture.gradients import OwnedParameters


class Lean:
    """Hears thinned steps on behalf of `Steps`, whose open step it writes to."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.is_on = False
        """Whether the open step is thinned."""
        self.usual, self._held, self.sentry = Usual(), Held(), Sentry()
        self._cadence = Cadence(steps.budget)
        self._is_odd = self._is_stale = self._is_gone = False
        self.is_bare = False
        """Whether the open step is bare."""
        self.entered: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        """Arguments of the last forward of a bare step, until it closes."""
        self.graph: Any = None
        """Where the backward of a bare step began: the names of its operations. Until the optimizer
        steps, as a graph that lives on keeps the shapes that its parameters had."""
        self.layers, self.roots = Rack(), Rack()
        self._clearing = (True, False)
        """Whether gradients are cleared, and before the step: only full steps can tell."""
        self._settings: list[tuple[Any, ...]] = []
        self._is_finite = True
        self._clock, self._rate = 0.0, math.nan
        self._unclocked = self._quickly = 0
        self.quick: Quick = Quick(self)

    # -- in and out --------------------------------------------------------------------------

    def note(self, closed: Segment) -> None:
        """A full step closed: its loss is of those that a thinned one is compared with."""
        self.usual.note(main_loss(closed.loss_values()), closed.backward_losses)

    def can_begin(self, closed: Segment) -> bool:
        """Whether the step that has just closed was so plain that the next may be thinned."""
        steps = self._steps
        owned = steps.optimizers.only()
        return bool(
            owned is not None
            and closed.steps == closed.evaluations == 1
            and closed.forwards
            and closed.backwards
            and not (closed.skipped or closed.observations or closed.eval_mode_forwards)
            and (closed.losses or steps.is_sparse)
            and not (steps.is_stepless or steps.is_group_open or steps.is_scaler_used)
            and len(steps.roots) == 1
            and not (steps.parts.is_on or steps.newcomers.is_fresh)
            and not steps.board.is_compiled
            and steps.board.figures.device.type == "cpu"
            and steps.ordinal > wiring.EARLY[2]
            and not steps.flags.have_changed(steps.survey.tensors)  # as of this very step
            and self._learn(owned, closed)
        )

    def _learn(self, owned: OwnedParameters, closed: Segment) -> bool:
        """Learn from a full step what a thinned one is compared with; return whether it tells."""
        optimizer = owned.optimizer()
        if optimizer is None or closed.parameter is None or not self.sentry.choose(owned, closed):
            return False
        self._held.owned, self._held.row = owned, self._steps.optimizers.latest()
        self._settings = settings(optimizer)
        self._clearing = closed.is_cleared, closed.is_cleared_before_step
        self.sentry.is_emptied = self._steps.sentinels.were_empty
        tensors = self._steps.survey.tensors
        self.sentry.frozen = next((t for t in tensors if not t.requires_grad), None)
        self._note_pattern(closed)
        self.usual.note_norms(closed.parameter[owned.rows, ParameterStat.GRAD_NORM])
        return True

    def _note_pattern(self, heard: Segment) -> None:
        """Remember what a step of this loop is like: bare ones are taken to be the same."""
        if not heard.eval_forwards or not self._held.pattern:
            self._held.pattern = counts(heard)
        self._cadence.learn(heard)

    def begin(self) -> None:
        """The step that opens now is thinned."""
        self.is_on = True
        self._held.begin()
        self._clock, self._unclocked = thread_time(), 0
        self.layers.put(on=False)
        self._open()

    def _open(self) -> None:
        """Open the next thinned step, heard or bare."""
        steps, budget = self._steps, self._steps.budget
        self._is_odd = self._is_stale = self._is_gone = False
        self.entered = self.graph = None
        self._unclocked += 1
        cadence = self._cadence
        cadence.begin()
        self.is_bare = cadence.is_bare
        steps.ignored = cadence.ignored
        self.roots.put(on=not self.is_bare)
        if self.is_bare and self._held.owned is not None and not steps.now.losses:
            until_audit = steps.audit.due_at - steps.ordinal
            most = min(budget.stretch, until_audit, cadence.until_heard, self._held.room)
            weighed = cadence.until_weighed, cadence.weighed_every
            (root,) = steps.roots.values()
            optimizer = self._held.owned.optimizer()
            self.quick.start(root, optimizer, most, self._held.due_s, weighed)

    def end(self) -> None:
        """The step that opens now, or is open, is heard in full again."""
        self.entered = self.graph = None
        self.quick.stop()
        if self.is_on:
            self.is_on = self.is_bare = False
            self._steps.ignored = frozenset()
            self.layers.put(on=True)
            self.roots.put(on=True)
        self.hand_on()

    def leave(self) -> None:
        """Something came up in the middle of a step that only the full hearing understands."""
        if self.is_on:
            self._restore(self._steps.now)
            self._steps.sentinels.restart()
            self.end()

    # -- what the loop does ------------------------------------------------------------------

    def forward_began(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """See `Recorder.forward_began`; the step is open."""
        start = thread_time() if self._cadence.is_clocked else 0.0
        steps = self._steps
        steps.count_forward(module, args, kwargs)
        steps.microscope.step = steps.label
        steps.microscope.begin_forward(module, args, kwargs)
        if self._cadence.is_clocked:
            steps.board.seconds += thread_time() - start

    def bare_forward(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """The same on a bare step: what enters is at hand, mode and flags are those of training."""
        self.entered, self.graph = (args, kwargs), None
        is_eval = not module.training and self._steps.wiring.is_mode_dependent(module)
        if is_eval or self.sentry.has_flipped:
            self._hear()
            self.forward_began(module, args, kwargs)

    def backward_began(self, losses: Sequence[Any]) -> list[float]:
        """See `Listener`; returns the losses that were read."""
        start = thread_time() if self._cadence.is_clocked else 0.0
        steps = self._steps
        self.sentry.begin()
        read = []
        for loss in losses:
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                value = loss.item()
                read.append(value)
                if steps.now.forwards and (math.isfinite(value) or steps.is_ours(loss)):
                    steps.observe(steps.microscope.before_backward(loss))
        if self._cadence.is_clocked:
            steps.board.seconds += thread_time() - start
        return read

    def bare_backward(self, losses: Sequence[Any]) -> list[float]:
        """The same on a bare step: its loss is all that is looked at."""
        steps, read = self._steps, []
        self.sentry.begin()
        for loss in losses:
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                value = loss.item()
                read.append(value)
                self.usual.note_backward(value)
                self.graph = loss.grad_fn
                if value <= self.usual.backward or not steps.is_ours(loss):
                    continue
                if steps.now.is_done:
                    steps.activity()
                if self.is_bare:
                    self._hear()
                    steps.now.forwards += 1
                steps.microscope.step = steps.label
                if not math.isfinite(value):
                    self._remember_forward()
                    steps.observe(steps.microscope.before_backward(loss))
        return read

    def hold(self, closed: Sequence[Bare]) -> None:
        """Steps that `Quick` heard are over."""
        steps, usual = self._steps, self.usual
        for losses, backward, lr, end, norms in closed:
            self._held.add_bare(steps.label, losses, end - steps.last_end_s, lr, norms)
            usual.note_backward(backward)
            usual.note_loss(main_loss(losses))
            steps.label += 1
            steps.ordinal += 1
            steps.last_end_s = end
        self._quickly += len(closed)

    def _skip(self, closed: int) -> None:
        """Count steps that `Quick` heard, and that nobody was asked about."""
        self._steps.budget.skip(closed)
        self._cadence.count += closed
        self._unclocked += closed
        self._quickly = 0

    def resume(self, end: float) -> None:
        """`Quick` has stopped after its last step, which ended at `perf_counter()` time `end`."""
        self._skip(self._quickly - 1)
        self._steps.go_on(end)

    def take_over(
        self,
        entered: tuple[tuple[Any, ...], dict[str, Any]] | None,
        backward: float | None,
        losses: dict[str, float],
        optimizer: torch.optim.Optimizer | None,
        norms: list[float] | None,
    ) -> None:
        """Go on with a bare step of which `Quick` has heard that much (optimizer: has stepped)."""
        steps, now = self._steps, self._steps.now
        self._skip(self._quickly)
        steps.ignored = self._cadence.ignored
        self.entered = entered
        steps.microscope.step = steps.label
        if backward is not None:
            self.usual.note_backward(backward)
            now.forwards, now.backwards, now.backward_losses = 1, 1, [backward]
        now.losses = {name: [value] for name, value in losses.items()}
        now.norms = norms
        if optimizer is not None:
            self.bare_step_ended(optimizer)

    def gradient_broke(self) -> None:
        """The backward of a bare step left NaN or Inf: the gradients are looked at before the step.

        Its forward can be run again, with gradients of our own: those that reached it are gone.
        """
        if self.is_bare:
            steps = self._steps
            self._hear()
            steps.microscope.step = steps.label
            self._remember_forward()

    def gradient_left(self) -> None:
        """The gradient that is looked at is not there as the optimizer steps: is any?"""
        if self.is_bare and self._held.owned is not None:
            self._is_gone = all(t.grad is None for t in self._held.owned.tensors)
            self._is_odd |= self._is_gone

    def grown(self) -> None:
        """The optimizer of a bare step has got another group of parameters."""
        if self.is_bare:
            self._hear()

    def knows(self, owned: OwnedParameters) -> bool:
        """Whether this is what the only optimizer owned when the steps began to be thinned."""
        return owned is self._held.owned

    def fail(self, where: str, error: Exception) -> None:
        """`Quick` failed: the session hears nothing any more."""
        switch_off(self._steps, where, error)

    def _remember_forward(self) -> None:
        """Let the forward of a bare step be run again: its arguments are still at hand."""
        if self.entered is not None:
            (root,) = self._steps.roots.values()
            self._steps.microscope.begin_forward(root, *self.entered, is_late=True)
            self._steps.microscope.graph = self.graph

    def _hear(self) -> None:
        """The open step was bare and turned out odd: its gradients are looked at."""
        self.is_bare, self._is_odd = False, True
        self._steps.ignored = frozenset()

    def backward_ended(self, read: list[float]) -> None:
        """See `Listener`; the backward was one of the watched model."""
        now = self._steps.now
        now.forwards += self.is_bare
        if self.sentry.is_stale and not now.backwards:
            self._is_stale = True
            self._hear()
        elif self.sentry.began_empty:  # cleared meanwhile: what was added before is gone
            self._is_stale = False
        now.backwards += 1
        now.backward_losses += read
        if self.is_bare and self.sentry.is_broken():
            self.gradient_broke()

    def weigh(self) -> list[float] | None:
        """Return the gradient norms of the open bare step; None where they are beyond the usual."""
        if self._held.owned is None:
            return None
        norms, total = self._weighed(self._held.owned)
        return norms if total <= self.usual.norm else None

    def _weighed(self, owned: OwnedParameters) -> tuple[list[float], float]:
        """Return the norms of all gradients, `ABSENT` for none, and their sum."""
        gradients = [t.grad for t in owned.tensors]
        present = [g for g in gradients if g is not None]
        norms = self._steps.parameters.norms(present)
        total = sum(norms)
        return (norms if len(norms) == len(gradients) else _spread(norms, gradients)), total

    def step_began(self, owned: OwnedParameters) -> None:
        """See `Listener`: the gradients are looked at before the weights move."""
        steps, now = self._steps, self._steps.now
        if self.is_bare:
            now.norms = self.weigh()
            if now.norms is not None:
                return
            self.gradient_broke()
        start = thread_time() if self._cadence.is_clocked else 0.0
        now.evaluations += 1
        now.norms, total = self._weighed(owned)
        self._is_finite = math.isfinite(total)
        if not self._is_finite:
            steps.observe(steps.microscope.examine_gradients())
        self._is_odd |= not total <= self.usual.norm
        if self._cadence.is_clocked:
            steps.board.seconds += thread_time() - start

    def step_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """See `Listener`."""
        steps = self._steps
        now = steps.now
        now.steps += 1
        now.stepped.add(id(optimizer))
        steps.microscope.after_step(optimizer, is_finite_gradient=self._is_finite)
        now_set = settings(optimizer)
        if now_set != self._settings:
            self._settings = now_set
            steps.optimizers.note_step(optimizer)
            self._held.row = steps.optimizers.latest()
        now.optimizer = self._held.row
        steps.board.is_awaiting = True

    def bare_step_ended(
        self, optimizer: torch.optim.Optimizer, owned: OwnedParameters | None = None
    ) -> None:
        """The same on a bare step; `owned` is what the optimizer has, where that was asked."""
        now = self._steps.now
        self.graph = None
        self._is_odd |= owned is not None and not self.knows(owned)
        self._rate = rate(optimizer)
        now.steps += 1
        now.evaluations += 1
        now.stepped.add(id(optimizer))
        self._steps.microscope.after_step(optimizer)
        self._steps.board.is_awaiting = True

    # -- closing -----------------------------------------------------------------------------

    def close(self) -> bool:
        """Hold the open step back; False where it must close as a full one, with what is known."""
        steps, now = self._steps, self._steps.now
        loss = main_loss(now.loss_values())
        if not (self._is_plain(now) and loss <= self.usual.loss):
            self._measure_inputs()
            self._restore(now)
            self.end()
            steps.budget.look()
            self.usual.note_odd()
            return False
        start = thread_time() if self._cadence.is_clocked else 0.0
        end = perf_counter()
        now.is_cleared, now.is_cleared_before_step = self._clearing
        if not self.is_bare:
            self._note_pattern(now)
        self._held.add(steps.label, now, end - steps.last_end_s, self._rate)
        self.usual.note_loss(loss)
        steps.parameters.preclip = {}
        steps.microscope.end_step()
        steps.now = Segment()
        steps.label += 1
        steps.ordinal += 1
        steps.last_end_s = end
        if self._cadence.is_clocked:
            steps.board.seconds += thread_time() - start
        self.go_on(end)
        return True

    def go_on(self, end: float) -> None:
        """A thinned step was held back at `perf_counter()` time `end`: what of the next one?"""
        steps = self._steps
        if self._held.is_due(end):
            self.hand_on()
        if self._cadence.is_clocked:
            self._account()
        is_full = steps.budget.next_thinned()
        if is_full or steps.ordinal >= steps.audit.due_at:
            self.end()
            steps.open_full(is_on=is_full)
        else:
            self._open()

    def _is_plain(self, step: Segment) -> bool:
        if self._is_odd or step.observations or not (step.losses or self._steps.is_sparse):
            return False
        if step.steps != 1 or step.evaluations != 1 or step.skipped or step.backwards < 1:
            return False
        return not (
            step.eval_mode_forwards or step.train_mode_eval_forwards or step.is_clipped_after_step
        )

    def hand_on(self) -> None:
        """Hand the steps that wait on to detectors and trace."""
        if not self._held:
            return
        start, count = thread_time(), len(self._held)
        block = self._held.take(self._steps.run, self._steps.parameters)
        self.usual.note_norms(block.grad_norm)
        if self._steps.on_thinned(block):
            self._steps.budget.alarm()
        self._steps.budget.handed_on(thread_time() - start, count)

    def _account(self) -> None:
        """Tell the budget what hearing a thinned step costs."""
        board, now = self._steps.board, thread_time()
        own, board.seconds = board.seconds, 0.0
        self._steps.budget.thinned(own, (now - self._clock) / max(self._unclocked, 1))
        self._clock, self._unclocked = now, 0

    def restart_clock(self) -> None:
        """The step goes on on another thread, which has a clock of its own."""
        self._clock, self._unclocked = thread_time(), 0

    def _measure_inputs(self) -> None:
        """Read the inputs of a step that turned out odd, where they are still what they were."""
        steps = self._steps
        name = next(iter(steps.roots))
        glanced = [] if self.entered is None else [self.entered]
        for args, kwargs in steps.microscope.inputs() or glanced:
            steps.inputs.observe(name, args, kwargs)

    def _restore(self, step: Segment) -> None:
        """Put what was heard of a thinned step where a full step has it."""
        steps, owned = self._steps, self._held.owned
        if owned is None:
            return
        step.is_cleared, step.is_cleared_before_step = self._clearing
        step.is_cleared &= not self._is_stale
        step.is_cleared_before_step |= self._is_gone
        if step.norms is not None:
            steps.parameters.put(owned.rows, step.norms)
            step.norms = None
        else:
            steps.parameters.values[:, ParameterStat.GRAD_STATE] = math.nan
        optimizer = owned.optimizer()
        step.optimizer = None
        step.is_thinned = True
        if step.steps and optimizer is not None:
            steps.optimizers.note_step(optimizer)


def _spread(norms: list[float], gradients: Sequence[torch.Tensor | None]) -> list[float]:
    """Return the norms with `ABSENT` in the place of gradients that are None."""
    left = iter(norms)
    return [ABSENT if g is None else next(left) for g in gradients]
