# SPDX-License-Identifier: MIT
"""What stands where a session would: the same program, unwatched."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


class Unwatched(contextlib.AbstractContextManager["Unwatched"]):
    """Takes every call of a session and does nothing."""

    step = 0

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        return None

    def record_loss(self, *_: object, **__: object) -> None:
        pass

    def record_metric(self, *_: object) -> None:
        pass

    def step_iteration(self) -> None:
        pass

    def register_composite_hook(self, module: nn.Module) -> None:
        pass
