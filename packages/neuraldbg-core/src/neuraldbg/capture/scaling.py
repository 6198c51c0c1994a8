# SPDX-License-Identifier: MIT
"""What a gradient scaler multiplies the loss by, as far as its calls tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuraldbg.capture.readback import Later

if TYPE_CHECKING:
    from neuraldbg.capture.readback import Readback


class Scaling:
    """Between `scale` and `unscale_` or `step`, gradients are those of the scaled loss."""

    def __init__(self, readback: Readback) -> None:
        self._readback = readback
        self._value: Any = 1.0
        self._is_on = False
        self.count = -1
        """Steps, made or skipped, when the scaler was about to make one."""

    def began(self, scaler: Any) -> Any:
        """The loss was scaled; return by what, `Later` where that would wait for the device."""
        held = scaler._scale if self._readback.is_late else None  # noqa: SLF001 - the call syncs
        self._value = self._readback.number(scaler.get_scale() if held is None else held)
        self._is_on = True
        return self._value

    def ended(self) -> None:
        """Gradients are those of the loss itself again."""
        self._is_on = False

    @property
    def factor(self) -> Any:
        """What the loss is multiplied by now; may be `Later`."""
        value: Any = self._value if self._is_on else 1.0
        return value or 1.0  # halved to exactly 0: nothing can be divided out any more

    @property
    def is_on(self) -> bool:
        """Whether the loss is multiplied by another number than 1, as far as is known."""
        return self._is_on and (isinstance(self._value, Later) or self._value != 1.0)
