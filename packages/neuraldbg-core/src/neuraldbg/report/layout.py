# SPDX-License-Identifier: MIT
"""Places of a causal graph's nodes and edges on a page: columns from left to right."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.report.graph import CausalGraph, Edge, EdgeKind, Node, NodeKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BOX, LINE, PADDING = 212, 15, 9
COLUMN_GAP, ROW_GAP, MARGIN = 48, 18, 6
CHARACTERS = 30
"""Heuristic: so many letters of 12 px sans-serif fit into a box of 212 px."""


@dataclass(frozen=True)
class Box:
    """A node with its place, in pixels."""

    node: Node
    x: float
    y: float
    height: float
    lines: tuple[str, ...]
    width: int = BOX


@dataclass(frozen=True)
class Curve:
    """An edge as the `d` of a path."""

    d: str
    kind: str


@dataclass(frozen=True)
class Drawing:
    """A graph ready for an inline SVG."""

    boxes: tuple[Box, ...]
    curves: tuple[Curve, ...]
    width: float
    height: float
    line: int = LINE
    padding: int = PADDING


def drawing(graph: CausalGraph) -> Drawing | None:
    """Return causes and events of a graph with their places; None where there are none.

    A node stands one column right of all that leads to it. Layers are left to the heat maps.
    """
    nodes = [node for node in graph.nodes.values() if node.kind != NodeKind.LAYER]
    if not nodes:
        return None
    kept = {node.id for node in nodes}
    edges = [edge for edge in graph.edges if edge.source in kept and edge.target in kept]
    boxes = _placed(nodes, edges)
    return Drawing(
        tuple(boxes.values()),
        tuple(_curve(boxes[edge.source], boxes[edge.target], edge.kind) for edge in edges),
        max(box.x + box.width for box in boxes.values()) + MARGIN,
        max(box.y + box.height for box in boxes.values()) + MARGIN,
    )


def _placed(nodes: Sequence[Node], edges: Sequence[Edge]) -> dict[str, Box]:
    columns: dict[int, list[Node]] = {}
    for node, depth in _depths(nodes, edges):
        columns.setdefault(depth, []).append(node)
    sources: dict[str, list[str]] = {}
    for edge in edges:
        sources.setdefault(edge.target, []).append(edge.source)
    boxes: dict[str, Box] = {}
    for depth in sorted(columns):
        x, y = MARGIN + depth * (BOX + COLUMN_GAP), float(MARGIN)
        middle = {node.id: _middle(sources.get(node.id, ()), boxes) for node in columns[depth]}
        for node in sorted(columns[depth], key=lambda each: middle[each.id]):
            lines = tuple(part for line in node.lines for part in textwrap.wrap(line, CHARACTERS))
            height = len(lines) * LINE + 2 * PADDING
            y = max(y, middle[node.id] - height / 2)
            boxes[node.id] = Box(node, x, y, height, lines)
            y += height + ROW_GAP
    return boxes


def _depths(nodes: Sequence[Node], edges: Sequence[Edge]) -> list[tuple[Node, int]]:
    """Return each node with its column; a cycle is cut at its first node."""
    depths: dict[str, int] = {}
    waiting = list(nodes)
    into: dict[str, set[str]] = {node.id: set() for node in nodes}
    for edge in edges:
        into[edge.target].add(edge.source)
    while waiting:
        free = [node for node in waiting if into[node.id] <= depths.keys()]
        node = free[0] if free else waiting[0]
        waiting.remove(node)
        before = [depths[each] for each in into[node.id] if each in depths]
        depths[node.id] = 1 + max(before, default=-1)
    return [(node, depths[node.id]) for node in nodes]


def _middle(sources: Sequence[str], boxes: Mapping[str, Box]) -> float:
    known = [boxes[each] for each in sources if each in boxes]
    if not known:
        return 0.0
    return sum(box.y + box.height / 2 for box in known) / len(known)


def _curve(source: Box, target: Box, kind: EdgeKind) -> Curve:
    x1, y1 = source.x + source.width, source.y + source.height / 2
    x2, y2 = target.x, target.y + target.height / 2
    bend = max(40.0, abs(x2 - x1) / 2)
    points = ((x1 + bend, y1), (x2 - bend, y2), (x2, y2))
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Curve(f"M{x1:.1f},{y1:.1f} C{path}", kind.replace(" ", "-"))
