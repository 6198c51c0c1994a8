# SPDX-License-Identifier: MIT
"""Parameters that are frozen or thawed within the run: their `requires_grad`, step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from neuraldbg.schema.run import ParameterInfo

HABIT = 2
"""Changes from which on a parameter's flag tells nothing more: loops of two players switch the
other one off on each of their steps."""


class Flags:
    """Knows which parameters required gradients at last, `[P]`."""

    def __init__(self, tensors: Sequence[nn.Parameter]) -> None:
        self._known = [t.requires_grad for t in tensors]
        self._changes = [0] * len(self._known)

    def have_changed(self, tensors: Sequence[nn.Parameter]) -> bool:
        """Whether any is otherwise than at the last `inspect`."""
        return [t.requires_grad for t in tensors] != self._known

    def inspect(
        self, label: int, parameters: Sequence[ParameterInfo], tensors: Sequence[nn.Parameter]
    ) -> tuple[list[Observation], dict[str, list[nn.Parameter]]]:
        """Return what changed by the step `label`, and the thawed parameters by their layer."""
        frozen: dict[str, None] = {}
        thawed: dict[str, list[nn.Parameter]] = {}
        for row, (info, tensor) in enumerate(zip(parameters, tensors, strict=True)):
            if tensor.requires_grad == self._known[row]:
                continue
            self._known[row] = tensor.requires_grad
            self._changes[row] += 1
            if self._changes[row] > HABIT or info.is_declared_frozen:
                continue
            if tensor.requires_grad:
                thawed.setdefault(info.layer, []).append(tensor)
            else:
                frozen.setdefault(info.layer)
        if not (frozen or thawed):
            return [], {}
        sizes = [math.prod(p.shape) for p in parameters]
        still = sum(n for n, is_free in zip(sizes, self._known, strict=True) if not is_free)
        figures = {"share": still / max(sum(sizes), 1), "layers": float(len(frozen))}
        found = [
            Observation("frozen_midway", label, layer=path, figures=figures) for path in frozen
        ]
        return found + [Observation("thawed", label, layer=path) for path in thawed], thawed
