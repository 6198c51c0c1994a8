# SPDX-License-Identifier: MIT
"""The autograd graph behind a loss, read into plain lists for the time of one audit.

The walk only reads `next_functions`: it runs nothing, hooks nothing and copies no tensor. A `Tape`
holds references to nodes, and so to what they saved: it must not outlive the audit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.objective.activations import VIEWS, short_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NODE_LIMIT = 20_000
"""Nodes read at most. Heuristic: about 40 ms; a 1,000-layer network has 5,000 to 10,000."""

NONE = -1
"""Stands for an input that carries no gradient: data, a constant, a detached tensor."""


@dataclass(slots=True)
class Tape:
    """Nodes in topological order: 0 is the loss, every node stands before its own inputs."""

    nodes: list[Any]
    names: list[str]
    inputs: list[tuple[int, ...]]
    """For each node the places of what it reads, `NONE` for what carries no gradient."""
    outputs: list[list[int]]
    """For each node the places of the nodes that read it."""
    marks: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Layers whose output a node is, in the order of execution; containers after their content."""
    is_complete: bool = True
    """False where the graph was larger than the limit."""

    def shape(self, place: int) -> tuple[int, ...] | None:
        """Return the shape of what the node at `place` computed, None where it is not known."""
        try:
            return tuple(int(n) for n in self.nodes[place]._input_metadata[0].shape)  # noqa: SLF001
        except Exception:  # noqa: BLE001 - private to torch: absent or symbolic means unknown
            return None

    def saved(self, place: int, name: str) -> Any:
        """Return what the node saved under `name`, None where it is absent or already freed."""
        try:
            return getattr(self.nodes[place], "_saved_" + name, None)
        except Exception:  # noqa: BLE001 - freed by backward, or changed in place since
            return None

    def through(self, place: int, names: frozenset[str] = VIEWS, *, limit: int = 16) -> int:
        """Follow first inputs down through nodes of `names` and return where that ends.

        Marked nodes are passed too: a layer that only reshapes computes nothing.
        """
        while place != NONE and limit and self.names[place] in names:
            below = self.inputs[place]
            place, limit = (below[0] if below else NONE), limit - 1
        return place


def _discover(root: Any, limit: int) -> tuple[list[Any], list[tuple[int, ...]], bool]:
    """Collect the nodes behind `root` in order of discovery, with their inputs."""
    nodes, index, inputs = [root], {root: 0}, []
    is_complete = True
    for node in nodes:  # grows while it is read
        below = []
        for child, _ in node.next_functions:
            place = NONE if child is None else index.get(child, len(nodes))
            if place == len(nodes):
                if place >= limit:
                    is_complete, place = False, NONE
                else:
                    index[child] = place
                    nodes.append(child)
            below.append(place)
        inputs.append(tuple(below))
    return nodes, inputs, is_complete


def _topological(inputs: list[tuple[int, ...]]) -> list[int]:
    """Return the places such that every node stands before its inputs."""
    waiting = [0] * len(inputs)
    for below in inputs:
        for place in below:
            if place != NONE:
                waiting[place] += 1
    order = [0]
    for current in order:  # grows while it is read
        for place in inputs[current]:
            if place != NONE:
                waiting[place] -= 1
                if waiting[place] == 0:
                    order.append(place)
    return order


def is_inside(path: str, container: str) -> bool:
    """Return whether the module at `path` lies inside the one at `container`."""
    return path != container and (container == "" or path.startswith(container + "."))


def _executed(paths: Iterable[str]) -> tuple[str, ...]:
    """Order layers that share one output: as given, but containers after their content."""
    chain: list[str] = []
    for path in dict.fromkeys(paths):
        at = next((i for i, other in enumerate(chain) if is_inside(path, other)), len(chain))
        chain.insert(at, path)
    return tuple(chain)


def _standing(node: Any, index: Mapping[Any, int], limit: int = 8) -> int:
    """Find a layer's node in the graph, or what is left of it.

    An in-place operation on a view replaces the view's node: what the replaced node read is still
    there.
    """
    while node is not None and limit:
        if node in index:
            return index[node]
        if short_name(node) not in VIEWS:
            break
        below = node.next_functions
        node, limit = (below[0][0] if below else None), limit - 1
    return NONE


def _marks(
    layer_nodes: Mapping[str, Iterable[Any]], index: Mapping[Any, int]
) -> dict[int, tuple[str, ...]]:
    found: dict[int, list[str]] = {}
    for path, nodes in layer_nodes.items():
        for node in nodes:
            place = _standing(node, index)
            if place != NONE:
                found.setdefault(place, []).append(path)
    return {place: _executed(paths) for place, paths in found.items()}


def record(
    loss: Any, layer_nodes: Mapping[str, Iterable[Any]], *, limit: int = NODE_LIMIT
) -> Tape | None:
    """Read the graph behind `loss`.

    Args:
        loss: A tensor; its graph must not have been freed for saved tensors to be readable.
        layer_nodes: For each tapped layer the `grad_fn` of its outputs, taken when its forward
            ended.
        limit: Nodes read at most.

    Returns:
        The tape, None where the loss carries no graph.
    """
    root = getattr(loss, "grad_fn", None)
    if root is None:
        return None
    nodes, inputs, is_complete = _discover(root, limit)
    order = _topological(inputs)
    rank = {NONE: NONE} | {old: new for new, old in enumerate(order)}
    nodes = [nodes[old] for old in order]
    inputs = [tuple(rank[i] for i in inputs[old]) for old in order]
    outputs: list[list[int]] = [[] for _ in order]
    for place, below in enumerate(inputs):
        for child in below:
            if child != NONE:
                outputs[child].append(place)
    marks = _marks(layer_nodes, {node: place for place, node in enumerate(nodes)})
    short = {type(node): short_name(node) for node in nodes}
    return Tape(nodes, [short[type(n)] for n in nodes], inputs, outputs, marks, is_complete)
