# SPDX-License-Identifier: MIT
"""Prediction and target of different shapes: every sample is compared with every other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.objective.reading import rows
from neuraldbg.capture.objective.tape import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

Shape = tuple[int, ...]
SEARCH = 96
"""Operations of a loss that are looked at, from its end. Heuristic: usual losses have 15."""
_MEETING = frozenset({"Sub", "Rsub", "Mul", "Div", "Add", "MseLoss", "SmoothL1Loss", "HuberLoss"})
"""Operations in which a prediction and a target meet element by element."""


def is_outer(small: Shape, wide: Shape) -> bool:
    """Return whether `[N, 1, ...]` or `[N, ...]` became `[N, N, ...]`."""
    if len(wide) < 2 or wide[0] != wide[1] or wide[0] < 2:
        return False
    rest = wide[2:]
    return small in {(wide[0], 1, *rest), (wide[0], *rest), (1, wide[0], *rest)}


def _is_repeated(target: torch.Tensor) -> bool:
    """Return whether a target was broadcast too: a dimension of stride 0, or equal rows."""
    if any(s == 0 and n > 1 for s, n in zip(target.stride(), target.shape, strict=True)):
        return True
    values = rows(target, limit=8)
    return values is not None and bool((values[:1] == values).all())


def _is_sum_of_sides(gap: torch.Tensor) -> bool:
    """Return whether `gap[i, j]` is `a[i] - b[j]`: one value per row, one per column."""
    values = rows(gap, limit=8)
    if values is None or values.shape[0] < 2:
        return False
    step = values - values[:1]
    spread = (step - step[:, :1]).abs().max()
    return bool(spread <= 1e-4 * (1 + values.abs().max()))


class BroadcastLoss:
    """`(N, 1)` against `(N,)` gives `(N, N)`: the best prediction is the mean of all targets.

    Silent where the comparison of all pairs is written out: an `unsqueeze` in the loss, two sides
    with gradient (distance matrices), a target that truly has N x N values.
    """

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at the element-wise operations between the outputs and the loss."""
        for place in sorted(view.above)[:SEARCH]:
            if view.tape.names[place] not in _MEETING:
                continue
            for side in view.tape.inputs[place]:
                found = self._widened(view, place, side)
                if found is not None:
                    yield self._observation(view, place, side, *found)
                    return

    def _observation(
        self, view: View, place: int, side: int, small: Shape, wide: Shape
    ) -> Observation:
        return view.observation(
            "broadcast_loss",
            view.layer_of(side),
            confidence=0.95,
            figures={"rows": wide[0], "pairs": wide[0] * wide[1]},
            cause="loss_shape_broadcast",
            operation=view.tape.names[place],
            prediction=str(list(small)),
            compared=str(list(wide)),
        )

    def _widened(self, view: View, place: int, side: int) -> tuple[Shape, Shape] | None:
        """Return the shapes of a prediction before and after it was broadcast by accident."""
        tape = view.tape
        if side == NONE or self._is_written_out(view, side):
            return None
        small, wide = self._sizes(view, side, place)
        if small is None or wide is None or not is_outer(small, wide):
            return None
        target = tape.saved(place, "target")
        if isinstance(target, torch.Tensor):
            return (small, wide) if _is_repeated(target) else None
        if tape.inputs[place].count(NONE) == 1 and self._agrees(view, place):
            return small, wide
        return None

    def _sizes(self, view: View, side: int, node: int) -> tuple[Shape | None, Shape | None]:
        """Return the shape of one side before, and of all after, they were made to fit."""
        tape = view.tape
        wide = tape.shape(node)
        if tape.names[side] == "Expand":
            wide, side = tape.shape(side), tape.inputs[side][0]
            if side == NONE:
                return None, None
        return tape.shape(side), wide

    def _is_written_out(self, view: View, side: int) -> bool:
        """Return whether the loss itself gave the side its extra dimension."""
        for _ in range(4):
            if side == NONE or side not in view.above:
                return False
            if view.tape.names[side] == "Unsqueeze":
                return True
            if view.tape.names[side] not in {"Expand", "Alias", "Slice", "ToCopy"}:
                return False
            side = view.tape.inputs[side][0]
        return False

    def _agrees(self, view: View, node: int) -> bool:
        """Check the values: the other side must have been one number per sample."""
        tape = view.tape
        if tape.names[node] in {"Mul", "Div"}:
            name = "other" if tape.inputs[node][-1] == NONE else "self"
            other, wide = tape.saved(node, name), tape.shape(node)
            return (
                isinstance(other, torch.Tensor)
                and wide is not None
                and (
                    tuple(other.shape) != wide
                    and other.numel() * wide[0] == torch.Size(wide).numel()
                )
            )
        gaps = (tape.saved(reader, "self") for reader in tape.outputs[node])
        return any(
            isinstance(gap, torch.Tensor)
            and tuple(gap.shape) == tape.shape(node)
            and _is_sum_of_sides(gap)
            for gap in gaps
        )
