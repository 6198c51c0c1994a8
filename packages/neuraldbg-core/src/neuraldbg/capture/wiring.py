# SPDX-License-Identifier: MIT
"""Faults of wiring that the module tree, the optimizers and the gradients' facts give away.

Each check states facts; whether they are a fault of this run is for the detectors and the
reasoner. Every check runs on a few early steps and at the end, never in between.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import nn

from neuraldbg.capture.hidden import hidden_parameters
from neuraldbg.capture.layers import is_shapeless
from neuraldbg.capture.ranks import part_of
from neuraldbg.capture.succession import Succession
from neuraldbg.schema.facts import Observation
from neuraldbg.schema.plain import GRADIENT, PARAMETER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from neuraldbg.capture.layers import Survey
    from neuraldbg.settings import Settings

EARLY = (3, 8, 32)
"""Ordinals at which the early checks run. Heuristic: optimizers that step every other iteration
have shown themselves by then; identical rows that survive so many updates stay identical."""
ABSENT_STEPS = 3
"""Consecutive steps without a gradient before it counts as absent."""
_ROWS = 16
_GLIMPSE = 64
"""Numbers of a weight that tell whether it moves: each step of an update moves nearly all."""
_STRIDED = torch.strided


class Wiring:
    """Looks at what the training loop was given."""

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        survey: Survey,
        settings: Settings,
        ours: Collection[int],
    ) -> None:
        self.models, self.survey, self.settings = models, survey, settings
        self._ours = ours
        """`id()` of the watched parameters, and of those that they replaced and that still live."""
        self._mode_dependent: weakref.WeakKeyDictionary[nn.Module, bool] = (
            weakref.WeakKeyDictionary()
        )
        count = len(survey.parameters)
        self._absent = np.zeros(count, dtype=int)
        self._ever_present = np.zeros(count, dtype=bool)
        self._ever_owned = np.zeros(count, dtype=bool)
        self._identical: dict[str, nn.Module] = {}
        self.note_identical()
        self._hidden = list(hidden_parameters(models))
        self._hidden_at_first = [_glimpse(tensor) for _, tensor in self._hidden]
        self._said: set[tuple[str, str | None]] = set()
        self._foreign: list[weakref.ref[torch.optim.Optimizer]] = []
        self.succession = Succession(survey)
        self._steps = 0
        self._unstepped = 0
        self._glimpse: list[torch.Tensor] = []
        self.checkpointed: set[str] = set()
        """Layers that ran inside a reentrant checkpoint without gradients."""
        self._seen_gradient = np.zeros(count, dtype=bool)
        self.is_stepped_in_backward = False
        """Whether optimizers step inside the backward pass: what gets a gradient steps, then."""

    def is_mode_dependent(self, module: nn.Module) -> bool:
        """Whether train and eval mode differ: dropout with p > 0, or running statistics."""
        known = self._mode_dependent.get(module)
        if known is None:
            known = any(_depends_on_mode(m) for m in module.modules())
            self._mode_dependent[module] = known
        return known

    def note_foreign(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer without a single watched parameter stepped."""
        if not any(ref() is optimizer for ref in self._foreign):
            self._foreign.append(weakref.ref(optimizer))

    @property
    def has_foreign(self) -> bool:
        """Whether an optimizer without any watched parameter stepped."""
        return bool(self._foreign)

    def note_gradients(self) -> None:
        """Remember which parameters have a gradient when an optimizer steps."""
        for row, tensor in enumerate(self.survey.tensors):
            if tensor.grad is not None:
                self._seen_gradient[row] = True

    def unstepped(self, label: int) -> list[Observation]:
        """A step closed in a run in which no optimizer of watched parameters ever stepped."""
        self._unstepped += 1
        if self._unstepped == 1:
            self._glimpse = self._look_at_weights()
        if self._unstepped % ABSENT_STEPS:
            return []
        found = list(self._stale(label)) if self._unstepped == ABSENT_STEPS else []
        if ("weights_moved", None) not in self._said and self.is_unmoved is False:
            found.append(Observation("weights_moved", label))  # by hand
        return self._new(found)

    def _look_at_weights(self) -> list[torch.Tensor]:
        """Return a few numbers of each trainable weight on the CPU, copied."""
        return [
            _glimpse(part_of(tensor.detach()))
            for tensor in self.survey.tensors
            if tensor.requires_grad and tensor.device.type == "cpu" and tensor.layout is _STRIDED
        ]

    @property
    def is_unmoved(self) -> bool | None:
        """Whether no weight moved since a step first closed without an optimizer; None: unknown."""
        if not self._glimpse:
            return None
        now = self._look_at_weights()
        pairs = zip(self._glimpse, now, strict=False)
        return len(now) == len(self._glimpse) and all(torch.equal(a, b) for a, b in pairs)

    def inspect(self, label: int, ordinal: int, values: np.ndarray | None) -> list[Observation]:
        """Look at a closed step; what is found acts since the first step.

        Args:
            label: label of the run's first step.
            ordinal: its place in the run, from 0.
            values: `[P, len(ParameterStat)]` of the step.
        """
        if values is None:
            return []
        state = values[:, PARAMETER.GRAD_STATE]
        stepped = state != GRADIENT.NOT_STEPPED
        if stepped.any():
            self._steps += 1
            self._ever_owned |= stepped
            self._absent = np.where(state == GRADIENT.NONE, self._absent + 1, 0)
            self._ever_present |= stepped & (state != GRADIENT.NONE)
        if ordinal not in EARLY:
            return []
        found = [*self._frozen(label), *self._gradient_absent(label), *self._unregistered(label)]
        if ordinal >= EARLY[1]:
            found += [*self._same_rows(label), *self._zero_factors(label, values)]
        if ordinal >= EARLY[2]:
            found += [*self._left_out(label), *self._stale(label)]
        return self._new(found)

    def finish(self, label: int, ordinal: int) -> list[Observation]:
        """The last look, at the end of the run; `label` is that of its first step."""
        if self._steps == 0 and ordinal < ABSENT_STEPS:
            return []
        found = [*self._left_out(label), *self._stale(label), *self._gradient_absent(label)]
        found += self._same_rows(label) if ordinal >= EARLY[1] else []
        return self._new(found)

    def _new(self, found: Sequence[Observation]) -> list[Observation]:
        fresh = [o for o in found if (o.kind, o.layer) not in self._said]
        self._said |= {(o.kind, o.layer) for o in fresh}
        return fresh

    # -- checks ------------------------------------------------------------------------------

    def _unregistered(self, label: int) -> Iterator[Observation]:
        """Modules kept in plain containers whose parameters got a gradient and no optimizer."""
        owned = self.held | {id(t) for _, tensors in self.succession.optimizers for t in tensors}
        groups: dict[str, list[torch.Tensor]] = {}
        for (path, parameter), before in zip(self._hidden, self._hidden_at_first, strict=True):
            is_idle = parameter.grad is not None and id(parameter) not in owned
            if is_idle and torch.equal(_glimpse(parameter), before):  # not moved by hand either
                groups.setdefault(path, []).append(parameter)
        for path, parameters in groups.items():
            count = sum(p.numel() for p in parameters)
            yield Observation(
                "unregistered_module",
                label,
                layer=path,
                figures={"parameters": float(len(parameters)), "elements": float(count)},
                words={"cause": "unregistered_modules"},
            )

    def _left_out(self, label: int) -> Iterator[Observation]:
        """Trainable parameters that get gradients and that no optimizer has ever stepped."""
        if not self._ever_owned.any():
            return
        held = self.held
        layers: dict[str, list[str]] = {}
        for row, (info, tensor) in enumerate(
            zip(self.survey.parameters, self.survey.tensors, strict=True)
        ):
            if self._ever_owned[row] or not tensor.requires_grad or info.is_declared_frozen:
                continue
            if id(tensor) in held:
                continue
            layers.setdefault(info.layer, []).append(info.name)
        for layer, names in layers.items():
            if not self._has_gradient(names) or self._is_idle_model(layer):
                continue
            yield Observation(
                "parameter_not_in_optimizer",
                label,
                layer=layer,
                figures={"parameters": float(len(names))},
                words={"cause": "parameters_not_in_optimizer", "names": ", ".join(names[:4])},
            )

    def _is_idle_model(self, layer: str) -> bool:
        """Whether the layer is of one of several models of which nothing is ever stepped."""
        if len(self.models) == 1:
            return False
        prefix = layer.split(".", 1)[0]
        return not any(
            self._ever_owned[row]
            for row, info in enumerate(self.survey.parameters)
            if info.layer.split(".", 1)[0] == prefix
        )

    def _has_gradient(self, names: list[str]) -> bool:
        return any(
            self._seen_gradient[row]
            for row, info in enumerate(self.survey.parameters)
            if info.name in names
        )

    @property
    def held(self) -> set[int]:
        """`id()` of every tensor in the groups of the optimizers that stepped and still live."""
        return {
            id(p)
            for ref, _ in self.succession.optimizers
            if (optimizer := ref()) is not None
            for group in optimizer.param_groups
            for p in group["params"]
        }

    def _stale(self, label: int) -> Iterator[Observation]:
        """Optimizers that hold tensors which get no gradient and belong to no watched model."""
        shapes = [tuple(info.shape) for info in self.survey.parameters]
        candidates = [ref for ref, _ in self.succession.optimizers]
        candidates += self._foreign if not self._ever_owned.any() else []
        for ref in candidates:
            optimizer = ref()
            if optimizer is None:
                continue
            tensors = [p for g in optimizer.param_groups for p in g["params"]]
            stale = [
                p for p in tensors if id(p) not in self._ours and p.grad is None and p.requires_grad
            ]
            if not stale:
                continue
            alike = sum(tuple(p.shape) in shapes for p in stale)
            yield Observation(
                "foreign_optimizer_parameters",
                label,
                layer=self._replaced_by(stale),
                figures={
                    "stale": float(len(stale)),
                    "same_shape": float(alike),
                    "tensors": float(len(tensors)),
                },
                words={
                    "cause": "stale_optimizer_parameters",
                    "optimizer": type(optimizer).__name__,
                },
            )

    def _replaced_by(self, stale: Sequence[torch.Tensor]) -> str | None:
        """Return the first layer that stands where the held tensors stood; None: not known."""
        names = [
            info.layer
            for row, (info, tensor) in enumerate(
                zip(self.survey.parameters, self.survey.tensors, strict=True)
            )
            if not self._ever_owned[row] and tensor.requires_grad
        ]
        return names[0] if names and len(names) <= 2 * len(stale) else None

    def _frozen(self, label: int) -> Iterator[Observation]:
        """Parameters that do not require gradients and were not declared frozen."""
        frozen = [
            info
            for info, tensor in zip(self.survey.parameters, self.survey.tensors, strict=True)
            if not tensor.requires_grad and not info.is_declared_frozen
        ]
        if not frozen or len(frozen) == len(self.survey.parameters):
            return
        total = sum(math.prod(p.shape) for p in self.survey.parameters)
        share = sum(math.prod(p.shape) for p in frozen) / max(total, 1)
        for layer in dict.fromkeys(info.layer for info in frozen):
            yield Observation(
                "frozen_parameters",
                label,
                layer=layer,
                figures={"share": share, "layers": float(len({i.layer for i in frozen}))},
                words={"cause": "frozen_parameters"},
            )

    def _gradient_absent(self, label: int) -> Iterator[Observation]:
        """Layers whose parameters are stepped but never get a gradient."""
        layers: dict[str, list[bool]] = {}
        for row, info in enumerate(self.survey.parameters):
            if self.survey.tensors[row].requires_grad:
                never = bool(self._absent[row] >= ABSENT_STEPS and not self._ever_present[row])
                never |= self.is_stepped_in_backward and not self._ever_owned[row]
                layers.setdefault(info.layer, []).append(never)
        for layer, flags in layers.items():
            if not (flags and all(flags)):
                continue
            if layer in self.checkpointed:
                words = {"cause": "checkpoint_without_input_grad"}
                yield Observation("reentrant_checkpoint", label, layer=layer, words=words)
            else:
                yield Observation("gradient_absent", label, layer=layer)

    def note_identical(self) -> None:
        """Remember the layers whose rows are all equal at the start."""
        self._identical = {
            layer.info.path: module
            for layer in self.survey.layers
            if (module := layer.module()) is not None and _has_identical_rows(module)
        }

    def _same_rows(self, label: int) -> Iterator[Observation]:
        """Layers whose rows were equal at the start and still are, though training moved on."""
        for path, module in self._identical.items():
            if _has_identical_rows(module):
                weight = cast("torch.Tensor", module.weight)
                if not bool(torch.count_nonzero(part_of(weight.detach()))):
                    continue  # all zero: told apart by _zero_factors
                yield Observation(
                    "identical_rows",
                    label,
                    layer=path,
                    figures={"rows": float(weight.shape[0])},
                    words={"cause": "symmetric_init"},
                )

    def _zero_factors(self, label: int, values: np.ndarray) -> Iterator[Observation]:
        """Layers whose weight is all zero and whose gradient is exactly zero: two in series."""
        blocked = [
            info.layer
            for row, (info, tensor) in enumerate(
                zip(self.survey.parameters, self.survey.tensors, strict=True)
            )
            if values[row, PARAMETER.GRAD_STATE] == GRADIENT.ZERO
            and info.initial_rms == 0.0
            and part_of(tensor).numel()
            and not bool(torch.count_nonzero(part_of(tensor.detach())))
            and not (len(info.shape) == 1 and info.name.endswith("bias"))
        ]
        for layer in dict.fromkeys(blocked):
            yield Observation(
                "zero_factors",
                label,
                layer=layer,
                figures={"layers": float(len(set(blocked)))},
                words={"cause": "blocked_zero_init"},
            )


def _glimpse(tensor: torch.Tensor) -> torch.Tensor:
    """Return a few numbers of a tensor, copied."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, len(flat) // _GLIMPSE)].clone()


def _depends_on_mode(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.dropout._DropoutNd):  # noqa: SLF001 - base of all dropouts
        return module.p > 0
    if isinstance(module, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001
        return module.track_running_stats
    if isinstance(module, nn.MultiheadAttention | nn.RNNBase):
        return float(module.dropout) > 0
    return False


def _has_identical_rows(module: nn.Module) -> bool:
    weight = module._parameters.get("weight")  # noqa: SLF001 - reading a parametrized weight computes
    if not isinstance(weight, torch.Tensor) or is_shapeless(weight):
        return False
    if weight.dim() < 2 or weight.is_meta:
        return False
    if weight.shape[0] < 2 or not weight.requires_grad or hasattr(weight, "to_local"):
        return False
    rows = weight.detach()[:_ROWS]
    return bool((rows[1:] == rows[:1]).all())
