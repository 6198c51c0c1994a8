# SPDX-License-Identifier: MIT
"""Optimizers that take over parameters from others in mid-run, and what they bring along."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from neuraldbg.capture.gradients import OwnedParameters
    from neuraldbg.capture.layers import Survey


class Succession:
    """Every optimizer that stepped watched parameters, in order of its first step."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self.optimizers: list[tuple[weakref.ref[torch.optim.Optimizer], list[torch.Tensor]]] = []
        """Each with its watched parameters."""
        self._kinds: list[type] = []
        """Of each, its class: one of another kind is no resume."""
        self._strangers: dict[int, weakref.ref[torch.Tensor]] = {}
        """What else they hold, by `id()`."""

    def appeared(
        self,
        optimizer: torch.optim.Optimizer,
        owned: OwnedParameters,
        label: int,
        ordinal: int,
        *,
        has_stepped: bool = False,
    ) -> list[Observation]:
        """A new optimizer steps for the first time; says so where it replaces one in mid-run.

        One that was made for a changed model, and holds what none has held before, is meant.

        Args:
            optimizer: the optimizer.
            owned: its watched parameters.
            label: of the open step.
            ordinal: the place of that step in the run.
            has_stepped: whether it has made that first step already.
        """
        replaces = ordinal > 0 and any(
            old() is not optimizer
            and kind is type(optimizer)
            and owned.ids & {id(t) for t in tensors}
            for (old, tensors), kind in zip(self.optimizers, self._kinds, strict=True)
        )
        is_meant = replaces and (
            self._holds_newcomers(optimizer)
            or _has_history(optimizer, owned.tensors, int(has_stepped))
        )
        self.optimizers.append((weakref.ref(optimizer), list(owned.tensors)))
        self._kinds.append(type(optimizer))
        self._strangers |= {id(p): weakref.ref(p) for p in self._unwatched(optimizer)}
        if not replaces or is_meant:
            return []
        return [Observation("fresh_moments", label, words={"optimizer": type(optimizer).__name__})]

    def _unwatched(self, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        ours = {id(t) for t in self._survey.tensors}
        held = (p for group in optimizer.param_groups for p in group["params"])
        return [p for p in held if id(p) not in ours]

    def _holds_newcomers(self, optimizer: torch.optim.Optimizer) -> bool:
        known = {key for key, ref in self._strangers.items() if ref() is not None}
        return any(id(p) not in known for p in self._unwatched(optimizer))


def _has_history(
    optimizer: torch.optim.Optimizer, tensors: Sequence[torch.Tensor], own: int
) -> bool:
    """Whether its state is older than the `own` steps that it was seen to make.

    As after `load_state_dict`. A momentum buffer is taken for older: it counts no steps.
    """
    for tensor in tensors[:4]:
        state = optimizer.state.get(tensor) or {}
        step = state.get("step")
        if step is None and state.get("momentum_buffer") is not None:
            return True
        if step is not None and float(step) > own:
            return True
    return False
