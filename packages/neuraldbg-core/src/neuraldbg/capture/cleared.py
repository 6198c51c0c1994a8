# SPDX-License-Identifier: MIT
"""Whether gradients are cleared between optimizer steps, told from a few sentinel parameters.

A sentinel's gradient is fresh (None or zero), stale (its optimizer has used it), or dirty (a
backward added onto a stale one). Dirty when its optimizer steps again means: not cleared. Being
dirty in between is no fault: a GAN's generator loss flows into the discriminator's gradients too.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.ranks import part_of

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_COUNT = 6
"""Sentinels. Heuristic: first, last and four between; any one with a gradient is enough."""


class _State(Enum):
    FRESH = auto()
    STALE = auto()
    DIRTY = auto()


class Sentinels:
    """Tracks a handful of trainable parameters through backward, clearing and steps."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        trainable = [p for p in parameters if p.requires_grad]
        step = max(1, len(trainable) // _COUNT)
        self.parameters = trainable[::step][:_COUNT]
        self._states = [_State.FRESH] * len(self.parameters)
        self._marks: list[tuple[int, int] | None] = [None] * len(self.parameters)
        self._had: list[tuple[int, int] | None] = [None] * len(self.parameters)
        self.was_dropped = False
        """Whether gradients of a backward were gone at the next one with no step between."""
        self._is_suspect = False
        """Whether zeros were found at a step: from then on it is looked whether backward made them,
        as it does where half precision has no smaller numbers."""

    def restart(self) -> None:
        """Forget everything, in the middle of a step whose beginning was not followed."""
        self._states = [_State.FRESH] * len(self.parameters)
        self._marks = [_mark(p.grad) for p in self.parameters]
        self._had = [None] * len(self.parameters)

    def before_backward(self) -> None:
        """Forget stale gradients that have been cleared; remember the others' versions."""
        self.was_dropped = False
        for i, parameter in enumerate(self.parameters):
            gradient = parameter.grad
            if gradient is None or not _is_nonzero(gradient):
                if self._had[i] is not None and self._states[i] is _State.FRESH:
                    self.was_dropped = True
                self._states[i] = _State.FRESH
            self._marks[i] = _mark(gradient)
            self._had[i] = None

    def after_backward(self) -> bool:
        """A gradient that changed while stale is dirty; return whether any changed at all."""
        has_changed = False
        for i, parameter in enumerate(self.parameters):
            now = _mark(parameter.grad)
            if now is None or now == self._marks[i]:
                continue
            has_changed = True
            if not self._is_suspect or _is_nonzero(parameter.grad):
                self._had[i] = now
            if self._states[i] is _State.STALE:
                self._states[i] = _State.DIRTY
        return has_changed

    def at_step(self, owned: AbstractSet[int]) -> tuple[bool, bool]:
        """Return (not cleared since its last step, gone since its backward) for these ids."""
        mine = [i for i, p in enumerate(self.parameters) if id(p) in owned]
        dirty = any(self._states[i] is _State.DIRTY for i in mine)
        had = [i for i in mine if self._had[i] is not None]
        gone = bool(had) and all(self._is_gone(i) for i in had)
        if gone and not self._is_suspect and any(self.parameters[i].grad is not None for i in had):
            self._is_suspect, gone = True, False
        return dirty, gone

    def _is_gone(self, i: int) -> bool:
        """Whether a gradient that a backward wrote is None, or was written again and is all 0."""
        gradient = self.parameters[i].grad
        if gradient is None:
            return True
        return _mark(gradient) != self._had[i] and not _is_nonzero(gradient)

    def after_step(self, owned: AbstractSet[int]) -> None:
        """The optimizer has used these gradients."""
        for i, parameter in enumerate(self.parameters):
            if id(parameter) in owned:
                self._states[i] = _State.FRESH if parameter.grad is None else _State.STALE
                self._had[i] = None


def _mark(gradient: torch.Tensor | None) -> tuple[int, int] | None:
    return None if gradient is None else (id(gradient), gradient._version)  # noqa: SLF001 - no sync


def _is_nonzero(gradient: torch.Tensor | None) -> bool:
    """Whether a gradient holds anything but zeros; assumed so on an accelerator (no sync)."""
    if gradient is None:
        return False
    if gradient.device.type != "cpu" or gradient.layout is not torch.strided:
        return True
    return bool(torch.count_nonzero(part_of(gradient)))
