# SPDX-License-Identifier: MIT
"""The part of the autograd graph that lies outside the watched models: the user's loss code.

It is walked before each backward, and references to what its steep operations saved are kept for
the step: after backward the graph has let go of them. The walk stops at the models, whose nodes
are told by their sequence numbers (those given out between a forward's start and end).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from neuraldbg.capture.microscope.nodes import STEEP, Mask, SavedNode, is_custom, read, saved, stem

NODES = 256
"""Nodes visited on a healthy step. Heuristic: hand-written losses have 10 to 60."""
NODES_FAILING = 20_000
"""Nodes visited once a loss is not finite."""
KEPT_BYTES = 64 << 20
"""Saved tensors kept alive to the step's end, at most (DESIGN, section 4: a size limit)."""
HOPS = 5
"""How far from a steep operation a mask may stand. Heuristic: sum, view and cast in between."""


class Intervals:
    """Sequence numbers that belong to forwards of watched models."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []

    def add(self, start: int, stop: int) -> None:
        """Add `[start, stop)`; intervals come in order and do not overlap."""
        self.starts.append(start)
        self.stops.append(stop)

    def clear(self) -> None:
        """Forget all."""
        self.starts.clear()
        self.stops.clear()

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.starts, number) - 1
        return place >= 0 and number < self.stops[place]


class Region:
    """What was kept of one step's loss graph, first executed first."""

    __slots__ = ("_bytes", "is_complete", "nodes", "visited")

    def __init__(self) -> None:
        self.nodes: list[SavedNode] = []
        self.visited = 0
        self.is_complete = True
        self._bytes = 0

    def keep(self, node: SavedNode) -> None:
        """Keep what a node saved, within the size limit."""
        for value in node.values.values():
            if isinstance(value, Tensor):
                self._bytes += value.numel() * value.element_size()
        if self._bytes <= KEPT_BYTES:
            self.nodes.append(node)
        else:
            self.is_complete = False


def collect(roots: Iterable[Any], models: Intervals, *, everything: bool = False) -> Region:
    """Walk from `roots` (graph nodes) down to the models and keep what steep nodes saved.

    Args:
        roots: `loss.grad_fn`, or several such.
        models: Where to stop.
        everything: Keep all known nodes and go on for long (a loss that is not finite).
    """
    region = Region()
    limit = NODES_FAILING if everything else NODES
    trail: list[tuple[Any, int, int]] = []  # node, index of its consumer, operand number there
    seen = set()
    stack = [(node, -1, 0) for node in roots if node is not None]
    starts, stops = models.starts, models.stops
    while stack:
        item = stack.pop()
        node = item[0]
        if node in seen:
            continue
        seen.add(node)
        if len(trail) >= limit:
            region.is_complete = False
            break
        here = len(trail)
        trail.append(item)
        name = node.name()
        key = name.partition("Backward")[0]
        wanted = everything or key in STEEP or is_custom(node)
        kept = read(node, _masks(trail, here)) if wanted else None
        for place, (child, _) in enumerate(node.next_functions):
            if child is None:
                if kept is not None:
                    kept.open_operands += 1
                continue
            number = child._sequence_nr()  # noqa: SLF001
            inside = bisect_right(starts, number) - 1
            if inside >= 0 and number < stops[inside]:
                if kept is not None:
                    kept.is_fed_by_model = True
                continue
            stack.append((child, here, place))
        if kept is not None:
            if everything:
                kept.makers = _makers(node, 1 if key == "Div" else 0)
            region.keep(kept)
    region.visited = len(trail)
    region.nodes.sort(key=lambda one: one.sequence)
    return region


def _makers(node: Any, place: int) -> tuple[str, ...]:
    """Return the stems of the nodes behind one operand, nearest first."""
    names: list[str] = []
    child = node.next_functions[place][0] if len(node.next_functions) > place else None
    while child is not None and len(names) < HOPS:
        names.append(stem(child.name()))
        child = next((one for one, _ in child.next_functions if one is not None), None)
    return tuple(names)


def _masks(trail: Sequence[tuple[Any, int, int]], here: int) -> tuple[Mask, ...]:
    """Return what throws away parts of this node's result on its way to the loss."""
    found = []
    _, consumer, place = trail[here]
    for _ in range(HOPS):
        if consumer < 0:
            break
        node, above, next_place = trail[consumer]
        key = stem(node.name())
        mask = _mask_of(node, key, place)
        if mask is not None:
            found.append(mask)
        consumer, place = above, next_place
    return tuple(found)


def _mask_of(node: Any, key: str, place: int) -> Mask | None:
    if key == "Where":
        condition = saved(node, "condition")
        if not isinstance(condition, Tensor):
            return Mask("where", None)
        return Mask("where", ~condition if place == 0 else condition)
    if key == "MaskedFill":
        condition = saved(node, "mask")
        return Mask("masked_fill", condition if isinstance(condition, Tensor) else None)
    if key == "Mul" and any(child is None for child, _ in node.next_functions):
        other = saved(node, "other" if place == 0 else "self")
        if isinstance(other, Tensor) and other.dim():
            return Mask("a product with 0", other == 0)
    return None


def masks_above(root: Any, target: Any, limit: int = NODES_FAILING) -> tuple[Mask, ...]:
    """Return the masks between `target` and `root`, in a graph that is alive (a re-run's)."""
    trail: list[tuple[Any, int, int]] = []
    seen = set()
    stack = [(root, -1, 0)]
    while stack and len(trail) < limit:
        item = stack.pop()
        if item[0] in seen:
            continue
        seen.add(item[0])
        here = len(trail)
        trail.append(item)
        if item[0] is target:
            return _masks(trail, here)
        stack += [(child, here, place) for place, (child, _) in enumerate(item[0].next_functions) if child]
    return ()


def next_number() -> int:
    """Return the sequence number that the next node of this thread will get."""
    return int(torch._C._autograd._get_sequence_nr())  # noqa: SLF001
