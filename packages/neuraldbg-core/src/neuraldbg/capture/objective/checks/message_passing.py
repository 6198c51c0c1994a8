# SPDX-License-Identifier: MIT
"""Message passing: rows that are mixed along given relations, as in a network over a graph.

Wherever the relations come from (an argument, a buffer, a variable outside the model), the graph
behind the loss shows the product with a matrix that is not learned, or the sums over edges. No
fault by itself: it says that rows are nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.objective.reading import axis
from neuraldbg.capture.objective.tape import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

LEAST = 2
"""Hops from which it is said. Heuristic: one product or sum may be a pooling at the end."""
PRODUCTS = {"Mm": ("self", 0), "Bmm": ("self", 0), "SparseAddmm": ("mat1", 1)}
"""Products, and where the left factor stands among what they saved and among their inputs."""
SUMS = frozenset({"IndexAdd", "ScatterAdd", "ScatterReduce", "IndexReduce"})


class MessagePassing:
    """Counts the products of a fixed square matrix with rows, and the sums of rows over edges."""

    def __init__(self) -> None:
        self._is_told = False

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at what lies between the inputs and the model's outputs."""
        if self._is_told:
            return
        places = [place for place in range(len(view.tape.names)) if place not in view.above]
        nodes = [size for place in places if (size := _nodes(view, place))]
        if len(nodes) >= LEAST:
            self._is_told = True
            yield view.observation(
                "message_passing",
                confidence=1.0,
                figures={"hops": len(nodes), "nodes": max(nodes)},
            )


def _nodes(view: View, place: int) -> int:
    """Return how many rows a node of the graph mixes along relations, 0 where it does not."""
    name = view.tape.names[place]
    if name in PRODUCTS:
        saved, at = PRODUCTS[name]
        below = view.tape.inputs[place]
        if len(below) <= at or below[at] != NONE:
            return 0
        left = view.tape.saved(place, saved)
        is_given = isinstance(left, torch.Tensor) and not isinstance(left, torch.nn.Parameter)
        return left.shape[-1] if is_given and left.shape[-1] == left.shape[-2] > 1 else 0
    if name not in SUMS:
        return 0
    index, shape = view.tape.saved(place, "index"), view.tape.shape(place)
    if not isinstance(index, torch.Tensor) or not shape or len(shape) < 2:
        return 0
    is_over_rows = axis(view.tape.saved(place, "dim"), len(shape)) == 0
    return shape[0] if is_over_rows and index.shape[0] > shape[0] else 0
