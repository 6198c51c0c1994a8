# SPDX-License-Identifier: MIT
"""Layers that were put in place of others in mid-run, and the optimizer that was not told."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

PATIENCE = 3
"""Optimizer steps with a gradient before a newcomer counts as left out. Heuristic: whoever makes a
new optimizer, or adds a group, does so before the next step or two."""


@dataclass(slots=True)
class _Newcomer:
    path: str
    module: weakref.ref[nn.Module]
    label: int
    """Label of the step on which it was first called."""
    steps: int = 0
    """Optimizer steps seen since, on which it had a gradient."""


class Newcomers:
    """Follows the parameters of modules that the session did not open with."""

    def __init__(self) -> None:
        self._open: list[_Newcomer] = []

    def __bool__(self) -> bool:
        """Whether any is followed."""
        return bool(self._open)

    def note(self, fresh: Iterable[tuple[str, nn.Module]], label: int) -> None:
        """Modules were found in the model that were not there before the step `label`."""
        self._open += [_Newcomer(path, weakref.ref(module), label) for path, module in fresh]

    def see_gradients(self) -> None:
        """An optimizer is about to step: which of them have a gradient?"""
        for one in self._open:
            module = one.module()
            if module is not None:
                one.steps += any(p.grad is not None for p in module.parameters())

    def inspect(self, held: AbstractSet[int]) -> list[Observation]:
        """Return what is wrong with newcomers that have shown themselves for long enough.

        Args:
            held: `id()` of every parameter in the groups of living optimizers.
        """
        found, still_open = [], []
        for one in self._open:
            module = one.module()
            if module is None:
                continue
            if one.steps < PATIENCE:
                still_open.append(one)
                continue
            trainable = [p for p in module.parameters() if p.requires_grad]
            if trainable and not any(id(p) in held for p in trainable):
                figures = {"parameters": float(len(trainable))}
                words = {"cause": "stale_optimizer_parameters"}
                found.append(
                    Observation("replaced_layer_unowned", one.label, one.path, figures, words)
                )
        self._open = still_open
        return found
