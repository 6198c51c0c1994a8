# SPDX-License-Identifier: MIT
"""The part of the autograd graph that lies outside the watched models: the user's loss code.

It is walked before each backward, and references to what its steep operations saved are kept for
the step: after backward the graph has let go of them. The walk stops at the models, whose nodes
are told by their sequence numbers (those given out between a forward's start and end).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.microscope.history import history
from neuraldbg.capture.microscope.nodes import (
    PLANS,
    History,
    Mask,
    Paths,
    Plan,
    SavedNode,
    plan_of,
    saved,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

NODES = 256
"""Nodes visited on a healthy step. Heuristic: hand-written losses have 10 to 60."""
NODES_FAILING = 20_000
"""Nodes visited once a loss is not finite."""
KEPT_BYTES = 64 << 20
"""Saved tensors kept alive to the step's end, at most."""
HOPS = 5
"""How far from a steep operation a mask may stand. Heuristic: sum, view and cast in between."""


Trail = list[tuple[Any, int, int, bool]]
"""Nodes with the index of their consumer in this list, the operand number there, and whether
something above can throw a non-finite result away."""
Kept = tuple[Plan, dict[str, Any], int, list[tuple[Mask, ...]], bool, int, History]
UNKNOWN = History()


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

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        place = bisect_right(self.starts, number) - 1
        return place >= 0 and number < self.stops[place]


class Region:
    """What was kept of one step's loss graph; `nodes` come first executed first."""

    __slots__ = ("_kept", "_nodes", "is_complete", "size_bytes", "visited")

    def __init__(self) -> None:
        self._kept: list[Kept] = []
        self._nodes: list[SavedNode] | None = None
        self.visited = 0
        self.is_complete = True
        self.size_bytes = 0

    def keep(self, kept: Kept) -> None:
        """Keep what a node saved, within the size limit."""
        for value in kept[1].values():
            if isinstance(value, Tensor):
                self.size_bytes += value.nbytes
        if self.size_bytes <= KEPT_BYTES:
            self._kept.append(kept)
        else:
            self.is_complete = False

    @property
    def has_nodes(self) -> bool:
        """Whether anything was kept."""
        return bool(self._kept)

    @property
    def nodes(self) -> list[SavedNode]:
        """The kept nodes, made into records at the first question."""
        if self._nodes is None:
            made = [
                SavedNode(
                    plan.name,
                    number,
                    values,
                    tuple(paths),
                    plan.custom,
                    is_fed_by_model=is_fed,
                    open_operands=open_operands,
                    past=past,
                )
                for plan, values, number, paths, is_fed, open_operands, past in self._kept
            ]
            self._nodes = sorted(made, key=lambda one: one.sequence)
        return self._nodes


def collect(
    roots: Iterable[Any], models: Intervals, *, everything: bool = False, limit: int = NODES
) -> Region:
    """Walk from `roots` (graph nodes) down to the models and keep what steep nodes saved.

    About 1 us per node: it runs before every backward, so it stays flat and does without calls.

    Args:
        roots: `loss.grad_fn`, or several such.
        models: Where to stop.
        everything: Keep all known nodes and go on for long (a loss that is not finite).
        limit: Nodes to visit otherwise.
    """
    region = Region()
    limit = NODES_FAILING if everything else limit
    trail: Trail = []
    seen = set()
    steep: dict[Any, list[tuple[Mask, ...]]] = {}
    stack: Trail = [(node, -1, 0, everything) for node in roots if node is not None]
    starts, stops = models.starts, models.stops
    while stack:
        item = stack.pop()
        node = item[0]
        if node in seen:
            if node in steep:  # another operation uses its result
                steep[node].append(_masks(trail, item))
            continue
        seen.add(node)
        here = len(trail)
        if here >= limit:
            region.is_complete = False
            break
        trail.append(item)
        plan = PLANS.get(type(node)) or plan_of(node)
        is_dropped = item[3]
        is_kept = (plan.is_steep_if_dropped if is_dropped else plan.is_steep) or everything
        is_dropped = is_dropped or plan.is_dropping
        is_fed, open_operands = False, 0
        for place, (child, _) in enumerate(node.next_functions):
            if child is None:
                open_operands += 1
                continue
            number = child._sequence_nr()  # noqa: SLF001
            inside = bisect_right(starts, number) - 1
            if inside >= 0 and number < stops[inside]:
                is_fed = True
            else:
                stack.append((child, here, place, is_dropped))
        if is_kept and (everything or item[3] or plan.stem != "Pow" or _is_fraction(node)):
            past = history(node, int(plan.stem == "Div"), models) if everything else UNKNOWN
            steep[node] = [_masks(trail, item)]
            region.keep(
                (
                    plan,
                    plan.read(node),
                    node._sequence_nr(),  # noqa: SLF001
                    steep[node],
                    is_fed or past.is_from_model,
                    open_operands,
                    past,
                )
            )
    region.visited = len(trail)
    return region


def _is_fraction(node: Any) -> bool:
    """Whether a power's derivative at 0 is infinite: an exponent below 1, or not a number."""
    exponent = saved(node, "exponent")
    return not isinstance(exponent, (int, float)) or exponent < 1


def _masks(trail: Trail, item: tuple[Any, int, int, bool]) -> tuple[Mask, ...]:
    """Return what throws away parts of a node's result on one of its ways to the loss."""
    found: list[Mask] = []
    _, consumer, place, _ = item
    for _ in range(HOPS):
        if consumer < 0:
            break
        node, above, next_place, _ = trail[consumer]
        plan = PLANS.get(type(node)) or plan_of(node)
        if plan.is_mask:
            mask = _mask_of(node, plan.stem, place)
            if mask is not None:
                found.append(mask)
        consumer, place = above, next_place
    return tuple(found)


def _mask_of(node: Any, key: str, place: int) -> Mask | None:
    if key == "Where":
        condition = saved(node, "condition")
        if not isinstance(condition, Tensor):
            return Mask("where", None)
        return Mask("where", condition, is_dropped=place != 0)
    if key == "MaskedFill":
        condition = saved(node, "mask")
        return Mask("masked_fill", condition if isinstance(condition, Tensor) else None)
    if any(child is None for child, _ in node.next_functions):
        other = saved(node, "other" if place == 0 else "self")
        if isinstance(other, Tensor) and other.dim():
            return Mask("a product with 0", other, is_dropped=False)
    return None


def masks_above(root: Any, target: Any, limit: int = NODES_FAILING) -> Paths:
    """Return the masks between `target` and `root`, in a graph that is alive (a re-run's)."""
    trail: Trail = []
    seen = set()
    found: list[tuple[Mask, ...]] = []
    stack: Trail = [(root, -1, 0, False)]
    while stack and len(trail) < limit:
        item = stack.pop()
        if item[0] is target:
            found.append(_masks(trail, item))
            continue
        if item[0] in seen:
            continue
        seen.add(item[0])
        here = len(trail)
        trail.append(item)
        stack += [
            (child, here, place, False)
            for place, (child, _) in enumerate(item[0].next_functions)
            if child
        ]
    return tuple(found)


def next_number() -> int:
    """Return the sequence number that the next node of this thread will get."""
    return int(torch._C._autograd._get_sequence_nr())  # noqa: SLF001
