# SPDX-License-Identifier: MIT
"""What is still known of a NaN or Inf where a step's figures come after its weights have moved.

Nothing can be run again then: the weights are not those that made it. The extremes and the gradient
norms read every element, so the module is named all the same; its operation is not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    Observation,
    ParameterStat,
)

if TYPE_CHECKING:
    from neuraldbg.capture.segment import Segment
    from neuraldbg.schema.run import RunInfo

HINT = "its figures came from the device after the weights had moved: sync=True names the operation"
CONFIDENCE = 0.35
"""That of a birth without a cause in core's rules: the place is certain, the operation unknown."""


class Lateness:
    """Says once where the first NaN or Inf of a run was seen, and how to learn more."""

    def __init__(self) -> None:
        self._is_told = False

    def inspect(self, step: Segment, run: RunInfo, label: int) -> list[Observation]:
        """Look at a closed step; a step that a scaler skipped is none."""
        if self._is_told or step.skipped:
            return []
        inputs = step.inputs
        is_brought = inputs is not None and np.nansum(inputs[:, [InputStat.NAN, InputStat.INF]]) > 0
        if is_brought or any(found.kind.startswith("nonfinite") for found in step.observations):
            self._is_told = True
            return []
        phase, layer = _place(step, run)
        if not phase:
            return []
        self._is_told = True
        words, figures = {"phase": phase, "hint": HINT}, {"confidence": CONFIDENCE}
        return [Observation("nonfinite_unlocated", label, layer, figures, words)]


def _place(step: Segment, run: RunInfo) -> tuple[str, str | None]:
    """Return (phase, layer) of the first value that is not finite; no phase where all are."""
    layers = run.layers
    if step.activation is not None:
        rows = np.flatnonzero(step.activation[:, ActivationStat.NONFINITE] == 1)
        if len(rows):
            first = min(rows, key=lambda row: (layers[row].order < 0, layers[row].order, row))
            return "forward", layers[first].path
    if not all(map(math.isfinite, step.loss_values().values())):
        return "loss", None
    if step.parameter is None:
        return "", None
    states = step.parameter[:, ParameterStat.GRAD_STATE]
    broken = states == GradState.NONFINITE
    if not broken.any():
        return "", None
    if broken[states != GradState.NOT_STEPPED].all():
        return "backward", None  # all of them: it came with the gradient of the loss
    # A gradient spreads from the output to the input: the last layer is where it was born.
    order = {layer.path: layer.order for layer in layers}
    paths = [run.parameters[row].layer for row in np.flatnonzero(broken)]
    return "backward", max(paths, key=lambda path: order.get(path, -1))
