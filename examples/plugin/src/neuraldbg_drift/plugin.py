# SPDX-License-Identifier: MIT
"""The hooks, found through the entry point `drift` in the group `neuraldbg`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg import hookimpl

if TYPE_CHECKING:
    from neuraldbg import Cause, Detector


@hookimpl
def neuraldbg_detectors() -> list[type[Detector]]:
    """Return our detector."""
    from neuraldbg_drift.detector import WeightDrift

    return [WeightDrift]


@hookimpl
def neuraldbg_causes() -> list[Cause]:
    """Return the cause that usually stands behind it."""
    from neuraldbg import Cause

    return [
        Cause(
            id="weight_decay_missing",
            failures=("optimizer_instability",),
            signs="weights grow steadily over thousands of steps, and no weight decay is set",
            spares="weights settle, or weight decay is set",
            confirm="replay with weight decay 1e-2: the weights settle, the loss is no worse",
            remedy="set weight_decay, or use AdamW; exclude biases and norms",
        )
    ]
