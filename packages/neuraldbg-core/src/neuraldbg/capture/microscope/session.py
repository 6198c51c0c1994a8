# SPDX-License-Identifier: MIT
"""`Microscope`: what a session calls, and in which order suspects are looked at."""

from __future__ import annotations

import math
import re
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
from neuraldbg.capture.microscope.kept import Kept
from neuraldbg.capture.microscope.rerun import Forward, Paths
from neuraldbg.capture.microscope.verdict import flags

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from neuraldbg.capture.microscope.origin import Birth, Leaf
    from neuraldbg.capture.microscope.provenance import Growth
    from neuraldbg.schema.facts import Observation

ANOMALY = re.compile(r"Function '\w+' returned nan values")
"""What torch's anomaly mode says."""


class Microscope(Kept):
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
        super().__init__(models, examinations=examinations)
        self.is_late = False
        """Whether losses come from the device too late to be looked at while their graph lives."""
        self._models = dict(models)
        self._seconds = seconds
        self._broken: set[str] = set()
        self._has_told = False
        self._told_before: set[tuple[str | None, ...]] = set()
        self._paths: Paths | None = None

    # --- on every step -----------------------------------------------------------------

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
                return self._told(outcome.source, paths, outcome.root, hint, forward), note
        return None, note

    def _rerun(self, forward: Forward, paths: Paths, *, is_backward: bool = False) -> Outcome:
        outcome = rerun(forward, paths, self._seconds, is_backward=is_backward)
        self.failure = self.failure or outcome.failure
        return outcome

    def _told(
        self, source: Birth | Leaf, paths: Paths, root: str, hint: str, forward: Forward
    ) -> Observation:
        beside = [*forward.args, *forward.kwargs.values()]
        return report.from_source(self.step, source, paths.kinds, root, hint, beside)

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
            if not (kept or forward.is_late):
                continue
            outcome = self._rerun(forward, paths, is_backward=True)
            note = outcome.note or note
            growth |= outcome.growth
            if outcome.source is not None:
                told = self._told(outcome.source, paths, outcome.root, outcome.note, forward)
                return [told]
        exploded = judge_norm(
            [(n, p.grad) for n, p in self._parameters() if p.grad is not None], growth
        )
        if exploded is not None:
            return [report.birth(self.step, exploded[0], "backward", exploded[1], paths.kinds)]
        verdict = loss_part.judge_backward_regions(self._regions)
        if verdict is None and self.graph is not None:
            verdict = loss_part.judge_names(self.graph)
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
