# SPDX-License-Identifier: MIT
"""Figures that arrive some steps late, as from an accelerator, though everything is on the CPU."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from neuraldbg.capture import readback

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


class DelayedParcel:
    """Arrives when it has been asked for often enough."""

    def __init__(self, tensors: list[torch.Tensor], lag: int) -> None:
        self._tensors = [t.clone() for t in tensors]
        self._left = lag

    def is_here(self) -> bool:
        self._left -= 1
        return self._left < 0

    def open(self) -> list[torch.Tensor]:
        return self._tensors


class Delayed:
    """A carrier to which every tensor is remote, and every journey takes `lag` steps."""

    def __init__(self, lag: int) -> None:
        self._lag = lag

    def is_remote(self, tensor: torch.Tensor) -> bool:
        return True

    def send(self, tensors: list[torch.Tensor]) -> DelayedParcel:
        return DelayedParcel(tensors, self._lag)


@contextlib.contextmanager
def late(lag: int = 3) -> Iterator[None]:
    """Let sessions that are opened in the block read their figures `lag` steps late."""
    original = readback.carrier_for
    readback.carrier_for = lambda _: Delayed(lag)
    try:
        yield
    finally:
        readback.carrier_for = original
