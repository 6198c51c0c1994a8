# SPDX-License-Identifier: MIT
"""Bare steps heard by the shortest way: where a step takes less than a millisecond, calls count.

While it is on, the four places of the loop that tell of a bare step (the model's forward, backward,
the optimizer's step, a recorded loss) come here at once, and not through the recorder. Anything
that is not that plain loop, or is odd, *spills*: what is known of the open step goes back to the
recorder, which takes over as for any bare step. So does the last step of a stretch.
"""

from __future__ import annotations

import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.switchboard import SWITCHBOARD

if TYPE_CHECKING:
    from neuraldbg.capture.lean import Lean


class Quick:
    """The open bare step, as long as it is plain. `is_on` says whether it is heard here."""

    def __init__(self, lean: Lean) -> None:
        self.is_on = False
        self._lean, self._usual = lean, lean.usual
        self._thread = 0
        self._optimizer: torch.optim.Optimizer | None = None
        self._left = 0
        self._clear()

    def _clear(self) -> None:
        """Open a step."""
        self._is_done = False
        self._forwards = 0
        self._backward: float | None = None
        self._losses: dict[str, float] = {}

    def start(self, optimizer: torch.optim.Optimizer | None, steps: int) -> None:
        """Hear so many bare steps, from the one that opens now; not beside a second session."""
        self.is_on = optimizer is not None and steps > 1 and SWITCHBOARD.lend(self)
        if self.is_on:
            self._thread = threading.get_ident()
            self._optimizer, self._left = optimizer, steps
            self._clear()

    def stop(self) -> None:
        """Hear nothing any more."""
        if self.is_on:
            self.is_on, self._optimizer = False, None
            SWITCHBOARD.take_back()

    def spill(self) -> None:
        """Give what is known of the open step to the recorder, which hears the rest of it."""
        if self.is_on:
            optimizer = self._optimizer if self._is_done else None
            self.stop()
            self._lean.take_over(self._forwards, self._backward, self._losses, optimizer)

    # -- what the loop does: each returns whether that was all there is to do -----------------

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """A forward of the training begins; a step that is over closes, and waits."""
        if not torch.is_grad_enabled():
            return False
        if self._is_done:
            now = perf_counter()
            self._left -= 1
            if self._left <= 0 or not self._losses or self._lean.is_due(now):
                self.spill()
                return False
            self._lean.hold(self._losses, now)
            self._clear()
        self._forwards += 1
        self._lean.entered = (args, kwargs)
        return True

    def backward(self, loss: Any) -> bool:
        """A backward begins."""
        if threading.get_ident() != self._thread:
            return False
        is_plain = type(loss) is torch.Tensor and self._forwards == 1 and self._backward is None
        if is_plain and not self._is_done and loss.numel() == 1 and loss.device.type == "cpu":
            value = loss.item()
            if value <= self._usual.backward:
                self._backward = value
                self._usual.note_backward(value)
                return True
        self.spill()
        return False

    def stepped(self, optimizer: torch.optim.Optimizer) -> bool:
        """An optimizer has stepped."""
        if threading.get_ident() != self._thread:
            return False
        if optimizer is self._optimizer and self._backward is not None and not self._is_done:
            self._is_done = True
            return True
        self.spill()
        return False

    def record(self, value: float, name: str) -> bool:
        """A loss is recorded."""
        if threading.get_ident() != self._thread:
            return False
        if value <= self._usual.loss and name not in self._losses:
            self._losses[name] = value
            return True
        self.spill()
        return False
