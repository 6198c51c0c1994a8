# SPDX-License-Identifier: MIT
"""The recorder of one run: hears the training loop and has everything measured when it is due."""

from __future__ import annotations

import math
import weakref
from functools import partial
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from neuraldbg.capture import wiring
from neuraldbg.capture.closing import Steps
from neuraldbg.capture.containment import contained
from neuraldbg.capture.inputs import batch_size
from neuraldbg.capture.norms import local
from neuraldbg.capture.objective import reaches
from neuraldbg.capture.readback import Later
from neuraldbg.capture.roots import RootBegan, RootEnded
from neuraldbg.capture.sight import UNCOUNTED
from neuraldbg.capture.switchboard import SWITCHBOARD
from neuraldbg.capture.taps import Tap, in_backward

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UNSTEPPED_BACKWARDS = 64
"""Backwards without any optimizer step after which backwards count as steps. Heuristic: more
than any usual accumulation."""


class Recorder(Steps):
    """Implements `switchboard.Listener`: turns what the loop does into notes on the open step."""

    # -- attach and detach ------------------------------------------------------------------

    def attach(self) -> None:
        """Put the hooks on the models and join the switchboard."""
        for index, layer in enumerate(self.survey.layers):
            module = layer.module()
            if module is not None:
                tap = Tap(self.board, index, layer)
                handle = module.register_forward_hook(tap)
                self._handles.append(handle)
                self.board.taps.append(tap)
                self.lean.layers.add(tap.module, handle, tap)
        for name, model in self.roots.items():
            pre = RootBegan(self, name, self.board.figures.device)
            post = RootEnded(self, name)
            # A compiled wrapper passes attributes on to its module: options of its own hooks too.
            is_plain = not isinstance(getattr(model, "_orig_mod", None), nn.Module)
            began = model.register_forward_pre_hook(pre, prepend=is_plain, with_kwargs=is_plain)
            ended = model.register_forward_hook(post, with_kwargs=is_plain, always_call=is_plain)
            self._handles += [began, ended]
            self.lean.roots.add(weakref.ref(model), ended, post)
        self.parts.attach(self)
        self.audit.attach()
        self.wrapping.attach()
        SWITCHBOARD.join(self)
        self.last_end_s = perf_counter()

    def detach(self) -> None:
        """Remove every hook and leave the switchboard; safe to call twice."""
        self.lean.quick.stop()
        SWITCHBOARD.leave(self)
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.parts.detach()
        self.lean.layers.clear()
        self.lean.roots.clear()
        self.audit.detach()
        self.wrapping.detach()
        self.microscope.close()

    # -- forward ----------------------------------------------------------------------------

    @contained
    def forward_began(
        self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """An outermost forward of a watched model starts."""
        if not torch.is_grad_enabled():
            self._eval_forward(name, module)
            return
        self.parts.drop(name)
        if self.board.is_awaiting:
            self.activity()
        if self.lean.quick.is_on:
            if self.lean.quick.forward(module, args, kwargs):
                return
            self.lean.quick.spill()
            if self.board.is_awaiting:
                self.activity()
                self.lean.quick.spill()
        if self.lean.is_on:
            if self.lean.is_bare:
                self.lean.bare_forward(module, args, kwargs)
            else:
                self.lean.forward_began(module, args, kwargs)
            return
        start = thread_time()
        self._enter(name, module, args, kwargs)
        self.audit.forward_began(name, module, args, kwargs)
        self.microscope.step = self.label
        self.microscope.begin_forward(module, args, kwargs)
        self.board.seconds += thread_time() - start

    @contained
    def compiled_forward_began(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """The same, told by code that holds the whole model: nothing of it can be run again."""
        if self.board.is_awaiting:
            self.activity()
        start = thread_time()
        self._enter(name, self.roots[name], args, kwargs)
        self.board.seconds += thread_time() - start

    def _enter(
        self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Count an outermost training forward and measure what enters it."""
        self.follow()
        self.count_forward(module, args, kwargs)
        self.inputs.observe(name, args, kwargs)

    def _eval_forward(self, name: str, module: nn.Module) -> None:
        self.now.eval_forwards += 1
        if module.training and self.wiring.is_mode_dependent(module):
            self.now.train_mode_eval_forwards += 1
            self.statistics.note(name, self.models[name])

    @contained
    def forward_ended(self, name: str, module: nn.Module, output: Any) -> None:
        """The same forward ended (output None where it raised)."""
        if not torch.is_grad_enabled():
            return
        if self.lean.is_on:
            if not self.lean.is_bare:
                self.microscope.end_forward(module, output)
            return
        start = thread_time()
        self.microscope.end_forward(module, output)
        self.audit.forward_ended(name, output)
        self.board.seconds += thread_time() - start

    @contained
    def part_began(
        self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """A module inside a watched model, which is not called itself, is called."""
        if self.board.is_awaiting:
            self.activity()
        start = thread_time()
        if self.parts.begin(module, self.now):
            is_data = self.parts.is_data
            data = tuple(value if is_data(value) else None for value in args)
            named = {key: value for key, value in kwargs.items() if is_data(value)}
            self.follow()
            self.inputs.observe(name, data, named)
            self.now.batch_size = max(self.now.batch_size, batch_size(data, named))
            # What another part made is no input of the run: its faults are found behind the loss.
            if all(map(is_data, (*args, *kwargs.values()))):
                self.microscope.step = self.label
                self.microscope.begin_forward(module, args, kwargs)
        self.board.seconds += thread_time() - start

    @contained
    def part_ended(self, module: nn.Module, output: Any) -> None:
        """It ended (output None where it raised)."""
        start = thread_time()
        if self.parts.end(module, output):
            self.microscope.end_forward(module, output)
        self.board.seconds += thread_time() - start

    @contained
    def adopt(self, thread: int, losses: Sequence[Any]) -> None:
        """Follow the training to the thread that it runs on, where none was seen so far."""
        if self.ordinal or self._group or not self.now.is_empty:
            return
        ours = set(self.parameters.row_of)
        if any(reaches(loss, ours) for loss in losses if isinstance(loss, torch.Tensor)):
            self.thread = self.board.thread = thread

    # -- switchboard ------------------------------------------------------------------------

    @contained
    def backward_began(self, losses: Sequence[Any]) -> None:
        """See `Listener`."""
        if self.board.is_awaiting and self.board.is_compiled:
            self.activity()  # taps inside compiled code cannot tell
        if self.lean.is_bare:
            self._pending = self.lean.bare_backward(losses)
            return
        if self.lean.is_on:
            self._pending = self.lean.backward_began(losses)
            return
        start = thread_time()
        if self.survey.lazy:
            self.complete()
        self.sentinels.before_backward()
        self._pending = []
        if self.board.touched or self.board.is_compiled:
            has_loss = bool(self.now.losses or self._group)
            if self.sentinels.was_dropped and has_loss and not self.optimizers:
                self._close_unstepped()
            for loss in losses:
                if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                    self._look_at(loss)
        self.board.seconds += thread_time() - start

    def _look_at(self, loss: torch.Tensor) -> None:
        """Read and audit a loss that a backward starts from, while its graph is alive."""
        scale = self._scaling.factor
        value = self.readback.number(loss, over=scale)
        if not (isinstance(value, Later) or math.isfinite(value) or self.is_ours(loss)):
            return
        self._pending.append(value)
        if self.ordinal < wiring.EARLY[1]:
            self.ledger.note_loss(loss, is_scaled=self._scaling.is_on)
        self.observe(self.audit.before_backward(self.label, self.ordinal, loss))
        self.observe(self.microscope.before_backward(loss, scale=scale))

    @contained
    def backward_ended(self) -> None:
        """See `Listener`."""
        if self.lean.is_on:
            if self.lean.sentry.has_moved():
                self.activity()  # no forward was heard of a bare step
                self.lean.backward_ended(self._pending)
                self.renewal.reached()
                return
            if not self.renewal.missed():
                return
            self._has_reached = True
        start = thread_time()
        has_changed = self.sentinels.after_backward()
        if has_changed:
            self.renewal.reached()
        elif self._has_reached:
            has_changed = self.renewal.missed()
        self._has_reached |= has_changed
        if has_changed or (self.board.touched and not self._has_reached):
            self.now.backwards += 1
            self.now.backward_losses += self._pending
            if not self.optimizers and self.now.backwards >= UNSTEPPED_BACKWARDS:
                self.is_stepless = True
        self._pending = []
        self.board.seconds += thread_time() - start

    @contained
    def clip_began(self, grads: Sequence[torch.Tensor]) -> None:
        """See `Listener`."""
        ours = {id(p.grad) for p in self.survey.tensors if p.grad is not None}
        self._is_clipping = any(id(g) in ours for g in grads)
        if not self._is_clipping:
            return
        if self.now.is_done:
            self.now.is_clipped_after_step = True
        else:
            self.now.clips += 1
            self.readback.then(partial(self.now.note_clip, self._scaling.factor))

    @contained
    def clip_measured(self, total: Any, norms: Mapping[int, torch.Tensor]) -> None:
        """See `Listener`."""
        if not self._is_clipping:
            return
        start = thread_time()
        if isinstance(total, torch.Tensor):
            self.now.clip_total_norm = self.readback.number(local(total.detach()))
        if not (self.now.is_done or self._scaling.is_on):
            self.parameters.note_preclip(norms)
        self.board.seconds += thread_time() - start

    @contained
    def clip_limited(self, max_norm: float) -> None:
        """See `Listener`."""
        if self._is_clipping:
            self.now.clip_max_norm = max_norm
            self._is_clipping = False

    @contained
    def step_began(self, optimizer: torch.optim.Optimizer) -> None:
        """See `Listener`."""
        owned = self.optimizers.owned_by(optimizer)
        if owned is None:
            self._stepped_unseen(optimizer)
            return
        if self.lean.is_on and id(optimizer) not in self.now.stepped:
            if self.lean.knows(owned):
                self.lean.step_began(owned)
                return
            self.lean.leave()
        start = thread_time()
        self.is_stepless = False
        self.wiring.is_stepped_in_backward |= in_backward()
        if self.optimizers.is_new(optimizer):
            self.observe(self.optimizers.register(optimizer, owned, self.label, self.ordinal))
            self.sight.is_due = self.ordinal > 0
        if id(optimizer) in self.now.stepped:
            self.close()  # no forward between: gradients that the user computes elsewhere
        if any(id(optimizer) in s.stepped for s in self._group):
            self._emit_apart()
        self.now.evaluations += 1
        scale = getattr(optimizer, "grad_scale", None)
        divisor = self.readback.number(scale) if isinstance(scale, torch.Tensor) else 1.0
        is_finite = self.parameters.before_step(owned, divisor)
        if self.ordinal <= wiring.EARLY[0]:
            self.wiring.note_gradients()
        self.newcomers.see_gradients()
        self.sentinels.at_step(owned.ids, self.now.note_clearing)
        if not is_finite and not self.readback.is_late:
            self.observe(self.microscope.examine_gradients(scale=divisor))
        self._finite_gradient = is_finite
        self.board.seconds += thread_time() - start

    def _emit_apart(self) -> None:
        """Losses are recorded less often than steps are made: each segment is a step."""
        self.is_sparse = True
        group, self._group = self._group, []
        for segment in group:
            self._emit([segment])

    def _stepped_unseen(self, optimizer: torch.optim.Optimizer) -> None:
        for sentence in self.sight.stepped_unseen(optimizer, self.current):
            self._warn(sentence)

    @contained
    def step_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """See `Listener`."""
        owned = self.optimizers.owned_by(optimizer)
        if owned is None:
            self.renewal.stepped()
            return
        if self.lean.is_bare and id(optimizer) in self.now.stepped:
            self.activity()  # a backward that reached nothing that bare steps look at came between
            self.lean.leave()
        if self.lean.is_on and not self.optimizers.is_new(optimizer):
            if self.lean.is_bare:
                self.lean.bare_step_ended(optimizer, owned)
            else:
                self.lean.step_ended(optimizer)
            return
        if self.optimizers.is_new(optimizer):  # first heard of here, after bare steps
            self.lean.leave()
            where = self.label, self.ordinal
            self.observe(self.optimizers.register(optimizer, owned, *where, has_stepped=True))
            self.sight.is_due = True
        start = thread_time()
        self.now.steps += 1
        found = getattr(optimizer, "found_inf", None)
        if isinstance(found, torch.Tensor):
            is_skipped = self.readback.number(found)
            self.readback.then(partial(self.now.note_found_inf, is_skipped))
        self.now.stepped.add(id(optimizer))
        is_finite = self.parameters.after_step(optimizer, owned)
        self.microscope.after_step(
            optimizer,
            is_finite_gradient=self._finite_gradient,
            is_finite_weight=is_finite and self.parameters.is_sampling,
        )
        is_broken = not (is_finite or self.readback.is_late)
        if is_broken and self._finite_gradient and self.parameters.was_finite:
            self.observe(self.microscope.examine_optimizer(optimizer))
        self.sentinels.after_step(owned.ids)
        self.optimizers.note_step(optimizer, self.now)
        self.audit.stepped(owned.ids)
        self.board.is_awaiting = True
        if self.board.is_compiled:
            self._fill(self.now)  # the next forward writes before Python hears of it
        self.board.seconds += thread_time() - start

    @contained
    def scaler_called(self, what: str, scaler: Any, subject: Any) -> None:
        """See `Listener`."""
        if not scaler.is_enabled():
            return
        self.is_scaler_used = True
        self.lean.leave()
        if what == "scale" and isinstance(subject, torch.Tensor):
            self.now.loss_scale = self._scaling.began(scaler)
        elif what == "unscale_":
            self._scaling.ended()
        elif what == "step":
            self._scaling.ended()
            self._scaling.count = self.now.steps + self.now.skipped
        elif what == "stepped" and self.now.steps + self.now.skipped == self._scaling.count:
            owned = self.optimizers.owned_by(subject)
            if owned is not None:
                self.now.skipped += 1
                note = partial(self.now.note_clearing, is_skipped=True)
                self.sentinels.at_step(owned.ids, note)
                self.sentinels.after_step(owned.ids)
                self.board.is_awaiting = True

    # -- what the user says -----------------------------------------------------------------

    @contained
    def record_loss(self, value: Any, name: str, tensor: torch.Tensor | None) -> None:
        """Attach a loss to the step that is open, or has just been made."""
        if self.lean.is_bare and self.now.is_done and name in self.now.losses:
            self.activity()  # no forward was heard: it is of the next step
        losses = self.now.losses.setdefault(name, [])
        losses.append(value)
        if self.lean.is_on and len(losses) >= UNCOUNTED + self.now.backwards:
            self.lean.leave()  # nothing ends this step
        if not (isinstance(value, Later) or math.isfinite(value)):
            self.observe(self.microscope.examine_loss(value, tensor))
        if self.is_stepless:
            self.close()
        elif not self.lean.is_on and self.sight.is_uncounted(
            len(losses), self.now, has_optimizer=bool(self.optimizers)
        ):
            self._count_by_losses(name)

    def _count_by_losses(self, name: str) -> None:
        """Nothing that ends a step is heard: each loss so far, and from now on, is one."""
        for sentence in self.sight.uncounted(
            self.label, self.now, has_optimizer=bool(self.optimizers)
        ):
            self._warn(sentence)
        self.is_stepless = True
        first, *later = self.now.losses[name]
        self.now.losses[name] = [first]
        self.close()
        for value in later:
            self.now.losses[name] = [value]
            self.close()

    @contained
    def record_metric(self, value: float, name: str) -> None:
        """Attach a metric to the step that is open, or has just been made."""
        self.now.metrics[name] = value

    @contained
    def relabel(self, step: int) -> None:
        """Name the step to come (or that is open) `step`."""
        if self.now.is_done or self._group:
            self.close()
        self.label = self.microscope.step = step

    @contained
    def examine_exception(self, error: BaseException) -> None:
        """The user's code raised inside the block."""
        self.readback.drain()
        self.observe(self.microscope.examine_exception(error))
