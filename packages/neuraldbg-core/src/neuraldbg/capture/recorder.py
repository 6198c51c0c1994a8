# SPDX-License-Identifier: MIT
"""The recorder of one run: hears the training loop, measures, and closes one record per step.

A record closes lazily, at the first activity after its optimizer stepped, so that a loss recorded
after the step still belongs to it. See `segment` for loops with several optimizers.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch import nn

from neuraldbg.capture import gradients, layers, wiring
from neuraldbg.capture.audit import Audit
from neuraldbg.capture.budget import Budget
from neuraldbg.capture.cleared import Sentinels
from neuraldbg.capture.gradients import ParameterBoard
from neuraldbg.capture.inputs import InputBoard
from neuraldbg.capture.ledger import Ledger
from neuraldbg.capture.microscope import Microscope
from neuraldbg.capture.objective import reaches
from neuraldbg.capture.optimizers import Optimizers
from neuraldbg.capture.roots import RootBegan, RootEnded
from neuraldbg.capture.segment import Segment, merge
from neuraldbg.capture.statistics import Reducer
from neuraldbg.capture.switchboard import SWITCHBOARD
from neuraldbg.capture.taps import Board, Tap
from neuraldbg.schema.facts import ActivationStat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from neuraldbg.schema.facts import Observation, StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.settings import Settings

logger = logging.getLogger("neuraldbg")

P = ParamSpec("P")
R = TypeVar("R")
BLIND_AFTER = 2
"""Ordinal of the step at which a compiled model without a single activation is told."""
UNSTEPPED_BACKWARDS = 64
"""Backwards without any optimizer step after which backwards count as steps. Heuristic: more
than any usual accumulation."""


def contained(
    method: Callable[Concatenate[Recorder, P], R],
) -> Callable[Concatenate[Recorder, P], R | None]:
    """Keep every failure inside: report it, switch the recorder off, never raise into training."""

    @functools.wraps(method)
    def guarded(self: Recorder, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if self.is_off or self.microscope.is_examining:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - promise 4: nothing of ours breaks training
            self.is_off = True
            self.board.is_on = False
            self.on_failure(method.__name__, error)
            return None

    return cast("Callable[Concatenate[Recorder, P], R | None]", guarded)


class Recorder:
    """Implements `switchboard.Listener`; owns the boards; hands `StepFacts` to `on_step`."""

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        settings: Settings,
        run: RunInfo,
        on_step: Callable[[StepFacts], bool],
        on_failure: Callable[[str, Exception], None],
    ) -> None:
        self.thread = threading.get_ident()
        self.settings = settings
        self.roots = dict(models)
        """The modules as the user calls them: wrappers of compile, DDP and the like included."""
        self.models = {name: layers.unwrap(model) for name, model in models.items()}
        self.survey = layers.survey(self.models, settings.frozen)
        self.on_step, self.on_failure = on_step, on_failure
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
        self.optimizers = Optimizers(self.survey, self.parameters, self.wiring)
        self.reducer.configure(self.run.layers)
        self.ordinal = 0
        self.label = 0
        self._group: list[Segment] = []
        self._now = Segment()
        self._is_sparse = False
        self._is_stepless = False
        self._scaled: dict[str, Any] = {"scale": 1.0, "is_scaled": False}
        self._handles: list[Any] = []
        self._last_end = perf_counter()
        self._pending: list[float] = []
        self._has_reached = False
        self._is_clipping = False
        self._finite_gradient = True
        self.board.is_compiled = any(
            isinstance(getattr(module, "_orig_mod", None), nn.Module)
            or getattr(module, "_compiled_call_impl", None) is not None
            for model in models.values()
            for module in model.modules()
        )

    # -- attach and detach ------------------------------------------------------------------

    def attach(self) -> None:
        """Put the hooks on the models and join the switchboard."""
        for index, layer in enumerate(self.survey.layers):
            module = layer.module()
            if module is not None:
                tap = Tap(self.board, index, layer)
                self._handles.append(module.register_forward_hook(tap))
        for name, model in self.roots.items():
            pre, post = RootBegan(self, name), RootEnded(self, name)
            # A compiled wrapper passes attributes on to its module: options of its own hooks too.
            is_plain = not isinstance(getattr(model, "_orig_mod", None), nn.Module)
            self._handles += [
                model.register_forward_pre_hook(pre, prepend=is_plain, with_kwargs=is_plain),
                model.register_forward_hook(post, with_kwargs=is_plain, always_call=is_plain),
            ]
        self.audit.attach()
        SWITCHBOARD.join(self)
        self._last_end = perf_counter()

    def detach(self) -> None:
        """Remove every hook and leave the switchboard; safe to call twice."""
        SWITCHBOARD.leave(self)
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.audit.detach()
        self.microscope.close()

    # -- forward ----------------------------------------------------------------------------

    @contained
    def activity(self) -> None:
        """Training work begins: close the step before it where it is over."""
        if not self._now.is_done:
            self.board.is_awaiting = False
            return
        has_loss = bool(self._now.losses or any(s.losses for s in self._group))
        if has_loss or self._is_sparse:
            self.close()
        else:
            self._group.append(self._seal())
        self.board.is_awaiting = False

    @contained
    def forward_began(
        self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """An outermost forward of a watched model starts."""
        if not torch.is_grad_enabled():
            self._eval_forward(module)
            return
        if self.board.is_awaiting:
            self.activity()
        start = thread_time()
        self._now.forwards += 1
        if not module.training and self.wiring.is_mode_dependent(module):
            self._now.eval_mode_forwards += 1
        self.inputs.observe(name, args, kwargs)
        self._now.batch_size = max(self._now.batch_size, _batch_size(args, kwargs))
        self.audit.forward_began(name, module, args, kwargs)
        self.microscope.step = self.label
        self.microscope.begin_forward(module, args, kwargs)
        self.board.seconds += thread_time() - start

    def _eval_forward(self, module: nn.Module) -> None:
        self._now.eval_forwards += 1
        if module.training and self.wiring.is_mode_dependent(module):
            self._now.train_mode_eval_forwards += 1

    @contained
    def forward_ended(self, name: str, module: nn.Module, output: Any) -> None:
        """The same forward ended (output None where it raised)."""
        if not torch.is_grad_enabled():
            return
        start = thread_time()
        self.microscope.end_forward(module, output)
        self.audit.forward_ended(name, output)
        self.board.seconds += thread_time() - start

    @contained
    def adopt(self, thread: int, losses: Sequence[Any]) -> None:
        """Follow the training to the thread that it runs on, where none was seen so far."""
        if self.ordinal or self._group or not self._now.is_empty:
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
        start = thread_time()
        self.sentinels.before_backward()
        self._pending = []
        if self.board.touched or self.board.is_compiled:
            if self.sentinels.was_dropped and not self.optimizers:
                self._close_unstepped()
            for loss in losses:
                if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                    self._look_at(loss)
        self.board.seconds += thread_time() - start

    def _look_at(self, loss: torch.Tensor) -> None:
        """Read and audit a loss that a backward starts from, while its graph is alive."""
        scale = self._loss_scale()
        if loss.device.type == "cpu" or self.settings.sync:
            self._pending.append(float(loss.detach()) / scale)
        if self.ordinal < wiring.EARLY[1]:
            self.ledger.note_loss(loss, is_scaled=self._is_scaled())
        self._observe(self.audit.before_backward(self.label, self.ordinal, loss))
        self._observe(self.microscope.before_backward(loss, scale=scale))

    @contained
    def backward_ended(self) -> None:
        """See `Listener`."""
        start = thread_time()
        has_changed = self.sentinels.after_backward()
        self._has_reached |= has_changed
        if has_changed or (self.board.touched and not self._has_reached):
            self._now.backwards += 1
            self._now.backward_losses += self._pending
            if not self.optimizers and self._now.backwards >= UNSTEPPED_BACKWARDS:
                self._is_stepless = True
        self._pending = []
        self.board.seconds += thread_time() - start

    @contained
    def clip_began(self, grads: Sequence[torch.Tensor]) -> None:
        """See `Listener`."""
        ours = {id(p.grad) for p in self.survey.tensors if p.grad is not None}
        self._is_clipping = any(id(g) in ours for g in grads)
        if not self._is_clipping:
            return
        if self._now.is_done:
            self._now.is_clipped_after_step = True
        else:
            self._now.clips += 1
            self._now.is_clipped_scaled |= self._is_scaled()

    @contained
    def clip_measured(self, total: Any, norms: Mapping[int, torch.Tensor]) -> None:
        """See `Listener`."""
        if not self._is_clipping:
            return
        start = thread_time()
        if isinstance(total, torch.Tensor) and total.device.type == "cpu":
            self._now.clip_total_norm = float(gradients.local(total.detach()))
        if not self._now.is_done and self._loss_scale() == 1.0:
            self.parameters.note_preclip(norms)
        self.board.seconds += thread_time() - start

    @contained
    def clip_limited(self, max_norm: float) -> None:
        """See `Listener`."""
        if self._is_clipping:
            self._now.clip_max_norm = max_norm
            self._is_clipping = False

    @contained
    def step_began(self, optimizer: torch.optim.Optimizer) -> None:
        """See `Listener`."""
        owned = self.optimizers.owned_by(optimizer)
        if owned is None:
            return
        start = thread_time()
        if self.optimizers.is_new(optimizer):
            self._observe(self.optimizers.register(optimizer, owned, self.label, self.ordinal))
        if id(optimizer) in self._now.stepped:
            self.close()  # no forward between: gradients that the user computes elsewhere
        if any(id(optimizer) in s.stepped for s in self._group):
            self._is_sparse = True
            group, self._group = self._group, []
            for segment in group:
                self._emit([segment])
        self._now.evaluations += 1
        scale = getattr(optimizer, "grad_scale", None)
        divisor = float(scale) if isinstance(scale, torch.Tensor) else 1.0
        is_finite = self.parameters.before_step(owned, divisor)
        if self.ordinal <= wiring.EARLY[0]:
            self.wiring.note_gradients()
        dirty, gone = self.sentinels.at_step(owned.ids)
        self._now.is_cleared &= not dirty
        self._now.is_cleared_before_step |= gone
        if not is_finite:
            self._observe(self.microscope.examine_gradients(scale=divisor))
        self._finite_gradient = is_finite
        self.board.seconds += thread_time() - start

    @contained
    def step_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """See `Listener`."""
        owned = self.optimizers.owned_by(optimizer)
        if owned is None:
            return
        start = thread_time()
        found = getattr(optimizer, "found_inf", None)
        if isinstance(found, torch.Tensor) and bool(found):
            self._now.skipped += 1
        else:
            self._now.steps += 1
        self._now.stepped.add(id(optimizer))
        is_finite = self.parameters.after_step(optimizer, owned)
        self.microscope.after_step(
            optimizer,
            is_finite_gradient=self._finite_gradient,
            is_finite_weight=is_finite and self.parameters.is_sampling,
        )
        if not is_finite and self._finite_gradient and self.parameters.was_finite:
            self._observe(self.microscope.examine_optimizer(optimizer))
        self.sentinels.after_step(owned.ids)
        self.optimizers.note_step(optimizer)
        self.audit.stepped(owned.ids)
        self.board.is_awaiting = True
        if self.board.is_compiled:
            self._fill(self._now)  # the next forward writes before Python hears of it
        self.board.seconds += thread_time() - start

    @contained
    def scaler_called(self, what: str, scaler: Any, subject: Any) -> None:
        """See `Listener`."""
        if not scaler.is_enabled():
            return
        state = self._scaled
        if what == "scale" and isinstance(subject, torch.Tensor):
            state |= {"scale": float(scaler.get_scale()), "is_scaled": True}
            self._now.loss_scale = state["scale"]
        elif what == "unscale_":
            state["is_scaled"] = False
        elif what == "step":
            state |= {"is_scaled": False, "before": self._now.steps}
        elif what == "stepped" and self._now.steps == state.get("before"):
            owned = self.optimizers.owned_by(subject)
            if owned is not None:
                self._now.skipped += 1
                self.sentinels.after_step(owned.ids)
                self.board.is_awaiting = True

    def _loss_scale(self) -> float:
        return float(self._scaled["scale"]) if self._scaled["is_scaled"] else 1.0

    def _is_scaled(self) -> bool:
        return bool(self._scaled["is_scaled"]) and self._scaled["scale"] != 1.0

    # -- what the user says -----------------------------------------------------------------

    @contained
    def record_loss(self, value: float, name: str, tensor: torch.Tensor | None) -> None:
        """Attach a loss to the step that is open, or has just been made."""
        self._now.losses.setdefault(name, []).append(value)
        if not math.isfinite(value):
            self._observe(self.microscope.examine_loss(value, tensor))
        if self._is_stepless:
            self.close()

    @contained
    def record_metric(self, value: float, name: str) -> None:
        """Attach a metric to the step that is open, or has just been made."""
        self._now.metrics[name] = value

    @contained
    def relabel(self, step: int) -> None:
        """Name the step to come (or that is open) `step`."""
        if self._now.is_done or self._group:
            self.close()
        self.label = step

    @contained
    def examine_exception(self, error: BaseException) -> None:
        """The user's code raised inside the block."""
        self._observe(self.microscope.examine_exception(error))

    # -- closing ----------------------------------------------------------------------------

    def _observe(self, found: Sequence[Observation] | None) -> None:
        if found:
            self._now.observations += found

    def _close_unstepped(self) -> None:
        """Gradients were cleared without a step: what came before them was a step of its own."""
        if self._now.backwards:
            later = Segment(forwards=1, batch_size=self._now.batch_size, losses={}, metrics={})
            self._now.forwards = max(0, self._now.forwards - 1)
            self._emit([*self._group, self._seal()])
            self._group, self._now = [], later
            self._is_stepless = True

    def _seal(self) -> Segment:
        """Fill the arrays of the open segment and start a new one."""
        sealed = self._now
        if sealed.activation is None:
            self._fill(sealed)
        self.microscope.end_step()
        self._now = Segment()
        return sealed

    def _fill(self, segment: Segment) -> None:
        """Give a segment its arrays and clear the boards."""
        start = thread_time()
        is_deep = self.parameters.is_deep
        segment.is_sampled = self.board.is_on
        segment.activation = self.reducer.reduce(with_samples=is_deep and self.board.is_on)
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
        group = [*self._group, self._seal()]
        self._group = []
        self._emit(group)

    def _emit(self, group: list[Segment], *, is_interrupted: bool = False) -> None:
        group = [s for s in group if not s.is_empty]
        if not group:
            return
        start = thread_time()
        step = merge(group)
        step.observations += self._findings(step, is_interrupted=is_interrupted)
        self._warn_if_blind(step)
        if self.audit.is_due_structure:
            self._learn_structure()
        self.run = self._run()
        seconds = perf_counter() - self._last_end
        facts = step.freeze(self.run, self.label, seconds, is_interrupted=is_interrupted)
        self.label += 1
        self.ordinal += 1
        has_event = self.on_step(facts)
        self.audit.next_step(self.ordinal, alarm=bool(has_event))
        self.budget.spend(thread_time() - start)
        end = perf_counter()
        self.board.is_on = self.budget.next_step(end - self._last_end, alarm=bool(has_event))
        is_deep = self.budget.is_deep
        self.parameters.is_sampling = self.board.is_on
        self.parameters.is_deep = self.inputs.is_deep = is_deep
        self._last_end = end

    def _findings(self, step: Segment, *, is_interrupted: bool) -> list[Observation]:
        """What a closed step shows of the loop, the wiring and the objective."""
        label, wires = self.label, self.wiring
        self._first_label = first = label if self._first_label is None else self._first_label
        wires.checkpointed |= {self.survey.layers[i].info.path for i in self.board.checkpointed}
        found = self.audit.settle(label)
        found += self.ledger.inspect(label, step, optimizers=len(self.optimizers.infos))
        if not self.optimizers and step.backwards and not is_interrupted:
            found += wires.unstepped(first)
            if not wires.has_foreign:
                found += self.ledger.unstepped(label, first)
        return found + wires.inspect(first, self.ordinal, step.parameter)

    def _warn(self, sentence: str) -> None:
        """Say once, in the log and in the trace, what of the run cannot be watched."""
        logger.warning(sentence)
        warnings = (*self.run.warnings, sentence)
        self.run = self.run.model_copy(update={"warnings": warnings})

    def _warn_if_blind(self, step: Segment) -> None:
        """Code that was compiled before the session opened never calls hooks put on it later."""
        if self.ordinal == BLIND_AFTER and self.board.is_compiled and step.activation is not None:
            calls = step.activation[:, ActivationStat.CALLS]
            if len(calls) and not calls.any():
                self._warn(
                    "the model was compiled and called before the session opened, so its "
                    "activations are not seen: open the session first, or call "
                    "torch._dynamo.reset() before it"
                )

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
        self._observe(self.wiring.finish(self._first_label or 0, self.ordinal))
        last = self._seal()
        is_whole = last.is_done or bool(self._group)
        has_trained = last.is_done or last.backwards or last.losses or last.observations
        if has_error or has_trained:  # else: a last forward to look at results
            self._group.append(last)
        group, self._group = self._group, []
        self._emit(group, is_interrupted=not is_whole)


def _batch_size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    for value in [*args, *kwargs.values()]:
        if isinstance(value, torch.Tensor) and value.dim() > 0:
            return int(value.shape[0])
    return 0
