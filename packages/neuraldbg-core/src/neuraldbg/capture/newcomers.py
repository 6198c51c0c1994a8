# SPDX-License-Identifier: MIT
"""Layers and parameters that replaced others in mid-run, and the optimizer that was not told."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from neuraldbg.capture.cleared import has_any
from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from torch import nn

PATIENCE = 3
"""Optimizer steps with a gradient before a newcomer counts as left out. Heuristic: whoever makes a
new optimizer, or adds a group, does so before the next step or two."""

LOOKS = 8
"""Full steps after which a newcomer is looked at only on those that come anyway. Heuristic: twice
the patience, and one that gets a gradient every other step shows itself."""


REPLACED = "replaced_layer_unowned", "stale_optimizer_parameters"
THAWED = "parameter_not_in_optimizer", "parameters_not_in_optimizer"
"""What is told of a newcomer that no optimizer holds: (kind, cause)."""


class _Source(Protocol):
    """Returns the parameters of a newcomer that still live."""

    def __call__(self) -> list[nn.Parameter]: ...


@dataclass(slots=True)
class _Newcomer:
    path: str
    parameters: _Source
    label: int
    """Label of the step on which it was first called."""
    looks: int = 0
    """Full steps that were looked at since."""
    steps: int = 0
    """Optimizer steps seen since, on which it had a gradient."""
    is_thawed: bool = False
    """Whether it was there before, and frozen."""


class Newcomers:
    """Follows parameters, and those of modules, that the session did not open with."""

    def __init__(self) -> None:
        self._open: list[_Newcomer] = []

    def __bool__(self) -> bool:
        """Whether any is followed."""
        return bool(self._open)

    @property
    def is_fresh(self) -> bool:
        """Whether one came so lately that the next steps have to be heard in full."""
        return any(one.looks < LOOKS for one in self._open)

    def note(self, fresh: Iterable[tuple[str, nn.Module]], label: int) -> None:
        """Modules were found in the model that were not there before the step `label`."""
        for path, module in fresh:
            self._open.append(_Newcomer(path, partial(_of, weakref.ref(module)), label))

    def note_parameters(
        self,
        fresh: Mapping[str, Sequence[nn.Parameter]],
        label: int,
        *,
        is_thawed: bool = False,
    ) -> None:
        """Modules, by path, were given parameters in place of theirs by the step `label`.

        `is_thawed`: they had them before, and have them trained from then on.
        """
        for path, tensors in fresh.items():
            source = partial(_living, [weakref.ref(t) for t in tensors])
            self._open.append(_Newcomer(path, source, label, is_thawed=is_thawed))

    def see_gradients(self) -> None:
        """An optimizer is about to step: which of them have a gradient?"""
        for one in self._open:
            one.steps += any(p.grad is not None for p in one.parameters())

    def inspect(self, held: AbstractSet[int]) -> list[Observation]:
        """Return what is wrong with newcomers that have shown themselves for long enough.

        Args:
            held: `id()` of every parameter in the groups of living optimizers.
        """
        found, still_open = [], []
        for one in self._open:
            parameters = one.parameters()
            if not parameters:
                continue
            one.looks += 1
            if one.steps < PATIENCE:
                still_open.append(one)
                continue
            trainable = [p for p in parameters if p.requires_grad]
            if not one.is_thawed and _is_blocked(trainable):
                words = {"cause": "blocked_zero_init"}
                found.append(Observation("zero_factors", one.label, one.path, {}, words))
            if trainable and not any(id(p) in held for p in trainable):
                figures = {"parameters": float(len(trainable))}
                kind, cause = THAWED if one.is_thawed else REPLACED
                words = {"cause": cause}
                found.append(Observation(kind, one.label, one.path, figures, words))
        self._open = still_open
        return found


def _of(ref: weakref.ref[nn.Module]) -> list[nn.Parameter]:
    module = ref()
    return [] if module is None else list(module.parameters())


def _is_blocked(trainable: Sequence[nn.Parameter]) -> bool:
    """Whether all matrices are zero after some steps, with gradients of zero: two in series."""
    matrices = [p for p in trainable if p.dim() > 1 and p.numel()]
    return bool(matrices) and all(
        p.grad is not None and not has_any(p.grad) and not has_any(p.detach()) for p in matrices
    )


def _living(refs: Sequence[weakref.ref[nn.Parameter]]) -> list[nn.Parameter]:
    return [p for ref in refs if (p := ref()) is not None]
