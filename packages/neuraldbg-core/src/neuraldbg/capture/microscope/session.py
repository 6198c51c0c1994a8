# SPDX-License-Identifier: MIT
"""`Microscope`: what a session calls, and in which order suspects are looked at."""

from __future__ import annotations

import math
import re
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.capture.layers import is_shapeless, plain_path
from neuraldbg.capture.microscope import loss as loss_part
from neuraldbg.capture.microscope import optimizer as steps
from neuraldbg.capture.microscope import report
from neuraldbg.capture.microscope.examine import Outcome, nonfinite_tensors, rerun
from neuraldbg.capture.microscope.exceptions import examine_raise, is_telling
from neuraldbg.capture.microscope.explosion import judge_norm
from neuraldbg.capture.microscope.region import KEPT_BYTES, Intervals, Region, collect, next_number
from neuraldbg.capture.microscope.rerun import Allowance, Forward, Paths, tensors_of, versions
from neuraldbg.capture.microscope.verdict import flags

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neuraldbg.capture.microscope.origin import Birth, Leaf
    from neuraldbg.capture.microscope.provenance import Growth
    from neuraldbg.schema.facts import Observation

FORWARDS = 32
"""Forwards of one step that can be run again. Heuristic: accumulation and siamese calls."""
GRADIENT_BYTES = 64 << 20
"""Limit on the gradients of root outputs kept to the step's end."""
REGIONS = 8
"""Loss graphs of one step that are kept. Heuristic: accumulation, two losses of a GAN."""
BARREN, THINNED = 64, 8
"""After so many walks in a row that found nothing steep, only every eighth backward is walked."""
LEAVES = 16
"""Tensors of one output whose gradients are kept."""
ANOMALY = re.compile(r"Function '\w+' returned nan values")
"""What torch's anomaly mode says."""


class Microscope:
    """Names the operation in which a NaN or Inf was born, on the step on which it appears.

    Args:
        models: Watched models by name (`""` for the only one); paths are prefixed `NAME.`.
        examinations: Examinations per run; later non-finite values are consequences of the first.
        seconds: Time limit of one re-run.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        *,
        examinations: int = 3,
        seconds: float = 20.0,
    ) -> None:
        self.step = 0
        """Label for observations; the session sets it."""
        self.is_examining = False
        """True during a re-run: taps, ledgers and patched calls must do nothing."""
        self.failure: str | None = None
        """What went wrong inside the microscope, once; it is off from then on."""
        self.is_late = False
        """Whether losses come from the device too late to be looked at while their graph lives."""
        self._models = dict(models)
        self._left = examinations
        self._seconds = seconds
        self._forwards: list[Forward] = []
        self._intervals = Intervals()
        self._glue: list[Any] = []
        self._regions: list[Region] = []
        self._has_stepped = False
        self._barren = 0
        self._allowance = Allowance(GRADIENT_BYTES)
        self._has_device = any(p.is_cuda for m in models.values() for p in m.parameters())
        self._is_seen = False
        self._steps: dict[int, tuple[weakref.ref[torch.optim.Optimizer], bool | None, int]] = {}
        self._broken: set[str] = set()
        self._has_told = False
        self._told_before: set[tuple[str | None, ...]] = set()
        self._paths: Paths | None = None

    # --- on every step -----------------------------------------------------------------

    def begin_forward(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """Remember an outermost training forward of a watched module; call from its pre-hook.

        Keeps references to the inputs (detached), the random state and autocast; about 6 us.
        """
        if self.is_examining or self._left <= 0:
            return
        if len(self._forwards) >= FORWARDS:
            self._forwards.pop(0)
        try:
            self._forwards.append(self._remember(module, args, kwargs))
        except Exception as error:  # noqa: BLE001 - never into the user's code
            self._fail(error)

    def _remember(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Forward:
        kept = tuple([self._plain(v) for v in args])
        named = {k: self._plain(v) for k, v in kwargs.items()} if kwargs else {}
        is_cuda = self._has_device or any(isinstance(v, Tensor) and v.is_cuda for v in kept)
        autocast: tuple[tuple[str, bool, torch.dtype], ...] = ()
        if torch._C._is_any_autocast_enabled():  # noqa: SLF001
            devices = ("cpu", "cuda") if is_cuda else ("cpu",)
            autocast = tuple(
                (d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices
            )
        return Forward(
            module=module,
            args=kept,
            kwargs=named,
            versions=versions(kept, named),
            random_state=torch.get_rng_state(),
            device_state=torch.cuda.get_rng_state() if is_cuda else None,
            autocast=autocast,
            start=next_number(),
            is_training=module.training,
            allowance=self._allowance,
        )

    def end_forward(self, module: nn.Module, output: Any) -> None:
        """The same forward ended; call from its forward hook. Hooks the output's gradients."""
        if self.is_examining or self._left <= 0 or not self._forwards:
            return
        forward = self._forwards[-1]
        if forward.module is not module or forward.stop >= 0:
            return
        try:
            forward.stop = next_number()
            self._intervals.add(forward.start, forward.stop)
            tensors = (output,) if isinstance(output, Tensor) else tensors_of(output)[:LEAVES]
            for place, tensor in enumerate(tensors):
                if tensor.requires_grad:
                    tensor.register_hook(_Keep(forward, place))  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - never into the user's code
            self._fail(error)

    def before_backward(self, loss: Tensor, *, scale: float = 1.0) -> list[Observation]:
        """Look at the loss before its backward; call while the graph is alive.

        The loss is read, unless figures come late. A finite one costs a short walk over the loss
        part of its graph, a non-finite one is examined at once.
        """
        if self.is_examining or self._left <= 0 or self.is_late:
            return []
        try:
            value = loss.item() if loss.numel() == 1 else (math.nan if flags(loss) else 0.0)
            if math.isfinite(value):
                self._walk(loss)
                return []
        except Exception as error:  # noqa: BLE001
            self._fail(error)
            return []
        return self._guarded(lambda: self._examine_loss(loss, scale), [])

    def _walk(self, loss: Tensor) -> None:
        """Keep the loss graphs of this step's last backwards, within one size limit."""
        if self._barren >= BARREN and self._barren % THINNED and not self._glue:
            self._barren += 1
            return
        region = collect([loss.grad_fn, *self._glue], self._intervals)
        self._glue.clear()
        self._barren = 0 if region.has_nodes else self._barren + 1
        if not region.has_nodes:
            return
        self._regions.append(region)
        while (
            len(self._regions) > REGIONS
            or sum(one.size_bytes for one in self._regions) > KEPT_BYTES
        ):
            self._regions.pop(0)

    def inputs(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Return the arguments of this step's forwards, where they are still what they were."""
        return [(one.args, one.kwargs) for one in self._forwards if not one.is_changed]

    def end_step(self) -> None:
        """Drop everything that belongs to the step."""
        self._forwards.clear()
        self._intervals.clear()
        self._glue.clear()
        self._regions.clear()
        self._has_stepped = False
        self._allowance.left = GRADIENT_BYTES
        self._is_seen = False

    def after_step(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        is_finite_gradient: bool | None = None,
        is_finite_weight: bool | None = None,
    ) -> None:
        """Remember that an optimizer stepped, and what of it is known to be finite.

        Weights that were finite after the step were not broken by it.
        """
        self._has_stepped = True
        if is_finite_weight:
            self._steps.pop(id(optimizer), None)
        elif self._left > 0:
            key = id(optimizer)
            known = self._steps.get(key)
            reference = (
                known[0]
                if known is not None and known[0]() is optimizer
                else weakref.ref(optimizer)
            )
            self._steps[key] = (reference, is_finite_gradient, self.step)

    def close(self) -> None:
        """Drop everything and stay off."""
        self.end_step()
        self._steps.clear()
        self._left = 0

    # --- on a failing step -------------------------------------------------------------

    def examine_loss(self, value: float, loss: Tensor | None = None) -> list[Observation]:
        """Examine a recorded loss that is not finite, unless a backward was seen on it already."""
        if self.is_examining or self._is_seen or self._left <= 0 or math.isfinite(value):
            return []
        return self._guarded(lambda: self._examine_recorded(loss), [])

    def examine_forwards(self) -> list[Observation]:
        """Run this step's forwards again because an activation was not finite and no backward came.

        For code that leaves the loop, or skips the batch, when it sees the NaN itself.
        """
        if self.is_examining or self._is_seen or self._left <= 0 or not self._forwards:
            return []

        def look() -> list[Observation]:
            paths = self._begin()
            broken = self._broken_parameters()
            if broken is not None:
                return broken
            observation, _ = self._rerun_forwards(paths)
            return [observation] if observation is not None else []

        return self._guarded(look, [])

    def examine_gradients(self, *, scale: float = 1.0) -> list[Observation]:
        """Examine a gradient that is not finite; call before the weights move.

        Under a loss scale this is how a scaler finds its scale: returns [] if the loss is finite.
        """
        if self.is_examining or self._is_seen or self._left <= 0 or scale != 1.0:
            return []
        return self._guarded(self._examine_gradients, [])

    def examine_optimizer(self, optimizer: torch.optim.Optimizer) -> list[Observation]:
        """Examine parameters that are not finite right after this optimizer stepped."""
        if self.is_examining or self._is_seen or self._left <= 0:
            return []

        def look() -> list[Observation]:
            broken = [
                (p, g)
                for p, g in steps.broken_parameters(optimizer)
                if p.grad is None or not flags(p.grad)
            ]
            return self._optimizer_births(optimizer, broken, self.step)

        return self._guarded(look, [])

    def examine_exception(self, error: BaseException) -> list[Observation]:
        """Examine what led to an exception of the user's code, if a NaN or Inf did."""
        if self.is_examining or self._left <= 0 or not is_telling(error):
            return []
        return self._guarded(lambda: self._examine_exception(error), [])

    def _guarded(
        self, look: Callable[[], list[Observation]], otherwise: list[Observation]
    ) -> list[Observation]:
        try:
            told = look()
            told = [one for one in told if self._is_new(one)]
            self._has_told = self._has_told or bool(told)
            return told  # noqa: TRY300
        except Exception as error:  # noqa: BLE001
            self._fail(error)
            return otherwise
        finally:
            self.is_examining = False

    def _is_new(self, found: Observation) -> bool:
        """Whether the same was not told before: a skipped step meets its overflow again."""
        key = (found.kind, found.layer, found.words.get("operation"), found.words.get("mechanism"))
        is_new = key not in self._told_before
        self._told_before.add(key)
        return is_new

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or repr(error)
        self._left = 0

    def _begin(self) -> Paths:
        self.is_examining, self._is_seen = True, True
        self._left -= 1
        self._paths = Paths(self._models)
        return self._paths

    def _examine_loss(self, loss: Tensor | None, scale: float) -> list[Observation]:
        if loss is not None and scale != 1.0 and loss_part.is_scale_overflow(loss):
            return []
        paths = self._begin()
        broken = self._broken_parameters()
        if broken is not None:
            return broken
        found = self._examine_region(loss) if loss is not None else None
        if found is not None and found.is_certain:
            return [report.birth(self.step, None, "loss", found.verdict, paths.kinds)]
        observation, note = self._rerun_forwards(paths)
        if observation is not None:
            return [observation]
        if found is not None:
            return [report.birth(self.step, None, "loss", found.verdict, paths.kinds)]
        return [report.unlocated(self.step, "loss", note)]

    def _examine_region(self, loss: Tensor) -> loss_part.Found | None:
        """Judge the loss graph; a failure there must not keep the models from being looked at."""
        try:
            with torch.no_grad():
                return loss_part.examine(loss, self._intervals)
        except Exception as error:  # noqa: BLE001
            self.failure = self.failure or repr(error)
            return None

    def _examine_recorded(self, loss: Tensor | None) -> list[Observation]:
        if self._has_stepped and self._broken_parameters() is not None:
            self._is_seen = True
            return [
                report.unlocated(
                    self.step, "loss", "the weights had moved before the loss was read (sync=True)"
                )
            ]
        return self._examine_loss(loss, 1.0)

    def _rerun_forwards(self, paths: Paths) -> tuple[Observation | None, str]:
        note = ""
        for forward in self._forwards:
            outcome = self._rerun(forward, paths)
            note = outcome.note or note
            if outcome.source is not None:
                hint = "an input was changed in place since" if forward.is_changed else outcome.note
                return self._told(outcome.source, paths, outcome.root, hint), note
        return None, note

    def _rerun(self, forward: Forward, paths: Paths, *, is_backward: bool = False) -> Outcome:
        outcome = rerun(forward, paths, self._seconds, is_backward=is_backward)
        self.failure = self.failure or outcome.failure
        return outcome

    def _told(self, source: Birth | Leaf, paths: Paths, root: str, hint: str = "") -> Observation:
        return report.from_source(self.step, source, paths.kinds, root, hint)

    def _examine_gradients(self) -> list[Observation]:
        paths = self._begin()
        broken = self._broken_parameters()
        if broken is not None:
            return broken
        note, lost = "", None
        growth: dict[str, Growth] = {}
        for forward in reversed(self._forwards):
            kept = forward.gradients or {}
            broken_gradients = [g for g in kept.values() if flags(g)]
            if broken_gradients:
                lost = broken_gradients[0]
                continue
            if not kept:
                continue
            outcome = self._rerun(forward, paths, is_backward=True)
            note = outcome.note or note
            growth |= outcome.growth
            if outcome.source is not None:
                return [self._told(outcome.source, paths, outcome.root, outcome.note)]
        exploded = judge_norm(
            [(n, p.grad) for n, p in self._parameters() if p.grad is not None], growth
        )
        if exploded is not None:
            return [report.birth(self.step, exploded[0], "backward", exploded[1], paths.kinds)]
        verdict = loss_part.judge_backward_regions(self._regions)
        if verdict is None and lost is not None:
            verdict = loss_part.judge_range(lost)
        if verdict is not None:
            return [report.birth(self.step, None, "backward", verdict, paths.kinds, "in the loss")]
        where = "the gradient left the loss non-finite" if lost is not None else note
        return [report.unlocated(self.step, "backward", where)]

    def _broken_parameters(self) -> list[Observation] | None:
        """Report parameters that were broken before this step's forward; None where none is.

        After a birth has been reported they are its consequence: nothing more is said, and no more
        examined.
        """
        broken = nonfinite_tensors(self._parameters())
        if not broken:
            return None
        told = list(self._optimizer_origin([t for _, t in broken]))
        name, tensor = broken[0]
        if name not in self._broken and not self._has_told and not told:
            told.append(report.nonfinite_parameter(self.step, name, tensor))
        self._broken |= {n for n, _ in broken}
        self._left = 0
        return told

    def _parameters(self) -> list[tuple[str, Tensor]]:
        """Return the parameters of the watched models by name."""
        return [
            (".".join(part for part in (model, plain_path(name)) if part), parameter)
            for model, module in self._models.items()
            for name, parameter in module.named_parameters()
            if not is_shapeless(parameter)
        ]

    def _optimizer_origin(self, broken: list[Tensor]) -> list[Observation]:
        wanted = {id(t) for t in broken}
        for reference, is_finite, step in self._steps.values():
            optimizer = reference()
            if optimizer is None or is_finite is not True:
                continue
            mine = [(p, g) for p, g in steps.broken_parameters(optimizer) if id(p) in wanted]
            if mine:
                return self._optimizer_births(optimizer, mine, step)
        return []

    def _optimizer_births(
        self,
        optimizer: torch.optim.Optimizer,
        broken: list[tuple[Tensor, dict[str, Any]]],
        step: int,
    ) -> list[Observation]:
        if not broken:
            return []
        paths = self._begin() if not self.is_examining or self._paths is None else self._paths
        parameter, group = broken[0]
        verdict = steps.judge_step(
            parameter, optimizer.state.get(parameter, {}), group, type(optimizer).__name__
        )
        name = next((n for n, t in self._parameters() if t is parameter), None)
        layer = name.rpartition(".")[0] if name is not None else None
        if name is not None:
            self._broken.add(name)
        return [report.birth(step, layer, "optimizer", verdict, paths.kinds)]

    def _examine_exception(self, error: BaseException) -> list[Observation]:  # noqa: PLR0911
        if self._is_seen:
            return []
        paths = self._begin()
        broken = self._broken_parameters()
        if broken is not None:
            return broken
        told = examine_raise(error, self.step, paths)
        if told:
            return told
        found = loss_part.examine_locals(error, self._intervals)
        if found is not None and found.is_certain:
            return [report.birth(self.step, None, "loss", found.verdict, paths.kinds)]
        if ANOMALY.search(str(error)):
            self._left += 1
            told = self._examine_gradients()
            if told and told[0].kind != "nonfinite_unlocated":
                return told
        observation, _ = self._rerun_forwards(paths)
        if observation is not None:
            return [observation]
        return (
            [report.birth(self.step, None, "loss", found.verdict, paths.kinds)]
            if found is not None
            else []
        )

    def _plain(self, value: Any) -> Any:
        """Return an argument without its graph; remember a graph node that no model made."""
        if isinstance(value, Tensor):
            node = value.grad_fn
            if node is None:
                return value
            number = node._sequence_nr()  # noqa: SLF001
            if len(self._glue) < LEAVES and number not in self._intervals:
                self._glue.append(node)
            return value.detach().requires_grad_()
        if type(value) in (list, tuple):
            return type(value)([self._plain(one) for one in value])
        if type(value) is dict:
            return {key: self._plain(one) for key, one in value.items()}
        return value


class _Keep:
    """Tensor hook: keeps the gradient that reached a root output while its step lives."""

    __slots__ = ("forward", "place")

    def __init__(self, forward: Forward, place: int) -> None:
        self.forward = weakref.ref(forward)
        self.place = place

    def __call__(self, gradient: Tensor) -> None:
        forward = self.forward()
        if forward is not None:
            forward.keep_gradient(self.place, gradient)
