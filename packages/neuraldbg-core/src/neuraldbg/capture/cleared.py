# SPDX-License-Identifier: MIT
"""Whether gradients are cleared between optimizer steps, told from a few sentinel parameters.

A sentinel's gradient is fresh (None or zero), stale (its optimizer has used it), or dirty (a
backward added onto a stale one). Dirty when its optimizer steps again means: not cleared. Being
dirty in between is no fault: a GAN's generator loss flows into the discriminator's gradients too.

Whether a gradient holds anything but zeros is read back from an accelerator some steps later; what
follows from it waits in the same line.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.ranks import part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from collections.abc import Set as AbstractSet

    from neuraldbg.capture.readback import Readback

_COUNT = 6
"""Sentinels. Heuristic: first, last and four between; any one with a gradient is enough."""


class _State(Enum):
    FRESH = auto()
    STALE = auto()
    DIRTY = auto()


class Sentinels:
    """Tracks a handful of trainable parameters through backward, clearing and steps."""

    def __init__(self, named: Mapping[str, torch.nn.Parameter], readback: Readback) -> None:
        self._readback = readback
        trainable = [(name, p) for name, p in named.items() if p.requires_grad]
        step = max(1, len(trainable) // _COUNT)
        chosen = trainable[::step][:_COUNT]
        self.parameters, self._names = [p for _, p in chosen], [name for name, _ in chosen]
        self._states = [_State.FRESH] * len(self.parameters)
        self._marks: list[tuple[int, int] | None] = [None] * len(self.parameters)
        self._had: list[tuple[int, int] | None] = [None] * len(self.parameters)
        self._written: list[tuple[int, int] | None] = [None] * len(self.parameters)
        """As `_had`, but known at once: what the last backward wrote, were it all zeros."""
        self.were_empty, self._has_stepped = False, True
        """Whether a backward since the last step began with no gradient at all: each was None."""
        self.was_dropped = False
        """Whether gradients of a backward were gone at the next one with no step between."""
        self._found: dict[int, bool] = {}
        """By sentinel, whether it was ever dirty as its optimizer stepped."""
        self._is_suspect = False
        """Whether zeros were found at a step: from then on it is looked whether backward made them,
        as it does where half precision has no smaller numbers."""

    def restart(self) -> None:
        """Forget everything, in the middle of a step whose beginning was not followed."""
        self._states = [_State.FRESH] * len(self.parameters)
        self._marks = [mark(p.grad) for p in self.parameters]
        self._had = [None] * len(self.parameters)

    def before_backward(self) -> None:
        """Forget stale gradients that have been cleared; remember the others' versions."""
        marks = self._marks = [mark(p.grad) for p in self.parameters]
        self.were_empty = not any(marks) or (self.were_empty and not self._has_stepped)
        self._has_stepped = False
        pairs = zip(self._written, marks, strict=True)
        self.was_dropped = self._readback.is_late and any(w and not m for w, m in pairs)
        self._written = [None] * len(marks)
        is_nonzero = self._ask([i for i, mark in enumerate(marks) if mark])
        self._readback.then(lambda: self._began(marks, is_nonzero))

    def _began(
        self, marks: list[tuple[int, int] | None], is_nonzero: Callable[[int], bool]
    ) -> None:
        for i in range(len(self.parameters)):
            if not (marks[i] and is_nonzero(i)):
                if self._had[i] is not None and self._states[i] is _State.FRESH:
                    self.was_dropped = True
                self._states[i] = _State.FRESH
            self._had[i] = None

    def after_backward(self) -> bool:
        """A gradient that changed while stale is dirty; return whether any changed at all."""
        marks = [mark(p.grad) for p in self.parameters]
        changed = [i for i, now in enumerate(marks) if now is not None and now != self._marks[i]]
        for i in changed:
            self._written[i] = marks[i]
        is_nonzero = self._ask(changed if self._is_suspect else ())
        self._readback.then(lambda: self._ended(changed, marks, is_nonzero))
        return bool(changed)

    def _ended(
        self,
        changed: list[int],
        marks: list[tuple[int, int] | None],
        is_nonzero: Callable[[int], bool],
    ) -> None:
        for i in changed:
            if not self._is_suspect or is_nonzero(i):
                self._had[i] = marks[i]
            if self._states[i] is _State.STALE:
                self._states[i] = _State.DIRTY

    def at_step(self, owned: AbstractSet[int], then: Callable[[bool, bool], None]) -> None:
        """Tell `then` (not cleared since its last step, gone since its backward) for these ids."""
        mine = [i for i, p in enumerate(self.parameters) if id(p) in owned]
        marks = {i: mark(self.parameters[i].grad) for i in mine}
        is_nonzero = self._ask(
            [i for i, mark in marks.items() if mark and mark != self._written[i]]
        )
        self._readback.then(lambda: then(*self._judge(marks, is_nonzero)))

    def _judge(
        self, marks: dict[int, tuple[int, int] | None], is_nonzero: Callable[[int], bool]
    ) -> tuple[bool, bool]:
        now = {i: self._states[i] is _State.DIRTY for i in marks}
        self._found |= {i: is_dirty or self._found.get(i, False) for i, is_dirty in now.items()}
        dirty = any(now.values())
        had = [i for i in marks if self._had[i] is not None]
        # Gone: what a backward wrote is None, or was written again and is all 0.
        gone = bool(had) and all(
            marks[i] is None or (marks[i] != self._had[i] and not is_nonzero(i)) for i in had
        )
        if gone and not self._is_suspect and any(marks[i] is not None for i in had):
            self._is_suspect, gone = True, False
        return dirty, gone

    @property
    def uncleared(self) -> str | None:
        """First part of the names of what was found dirty, where others never were; else None."""
        dirty = [i for i, was in self._found.items() if was]
        names = {self._names[i].partition(".")[0] for i in dirty}
        return names.pop() if len(names) == 1 and len(dirty) < len(self._found) else None

    def after_step(self, owned: AbstractSet[int]) -> None:
        """The optimizer has used these gradients."""
        kept = {i: p.grad is not None for i, p in enumerate(self.parameters) if id(p) in owned}
        self._has_stepped = True
        self._readback.then(lambda: self._used(kept))

    def _used(self, kept: dict[int, bool]) -> None:
        for i, is_kept in kept.items():
            self._states[i] = _State.STALE if is_kept else _State.FRESH
            self._had[i] = None

    def _ask(self, places: Collection[int]) -> Callable[[int], bool]:
        """Return what says whether the gradient in one of these places holds more than zeros.

        On the CPU it is looked at only when that is asked for. Of any other place it says True.
        """
        gradients = {i: self.parameters[i].grad for i in places}
        if not self._readback.is_late:
            return lambda i: i not in gradients or has_any(gradients[i])
        counts = [_count(g) for g in gradients.values()]
        found = dict(zip(gradients, self._readback.numbers(counts), strict=True))
        return lambda i: bool(float(found.get(i, 1.0)))


def mark(gradient: torch.Tensor | None) -> tuple[int, int] | None:
    """Return what is another one once anything is written into a gradient, or it is replaced."""
    return None if gradient is None else (id(gradient), gradient._version)  # noqa: SLF001 - no sync


def has_any(gradient: torch.Tensor | None) -> bool:
    """Whether a gradient on the CPU holds more than zeros."""
    return bool(_count(gradient))


def _count(gradient: torch.Tensor | None) -> torch.Tensor | int:
    """Count what is not zero; a sparse gradient is taken to hold something."""
    if gradient is None or gradient.layout is not torch.strided:
        return 0 if gradient is None else 1
    return torch.count_nonzero(part_of(gradient))
