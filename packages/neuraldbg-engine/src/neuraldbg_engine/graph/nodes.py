# SPDX-License-Identifier: LicenseRef-Proprietary
"""Nodes and edges: what can go wrong where, and what it reaches, as the run was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from neuraldbg.schema.run import INPUT

if TYPE_CHECKING:
    from neuraldbg.reasoning.flow import Flow


class Signal(StrEnum):
    """What a node stands for. Members stand in the order in which a step computes them."""

    INPUT = "input"
    ACTIVATION = "activation"
    LOSS = "loss"
    GRADIENT = "gradient"
    OPTIMIZER = "optimizer"
    PARAMETER = "parameter"


class Edge(StrEnum):
    """How one node reaches another."""

    FORWARD = "forward"
    """The output of one layer is read by the other, or by the loss."""
    LOCAL = "local"
    """The derivative of a layer's output multiplies the gradient that passes it."""
    BACKWARD = "backward"
    """The gradient of the later layer is what the earlier one gets."""
    STEP = "step"
    """The optimizer moves the weights by the gradient."""
    NEXT = "next"
    """The next forward runs with the weights that the step left: from step t to t + 1."""


@dataclass(frozen=True)
class Node:
    """One signal of one layer; `layer` is None where no layer is concerned."""

    signal: Signal
    layer: str | None = None

    def __str__(self) -> str:
        return self.signal if self.layer is None else f"{self.signal} of {self.layer or '(root)'!r}"


DATA = Node(Signal.INPUT)
LOSS = Node(Signal.LOSS)
OPTIMIZER = Node(Signal.OPTIMIZER)


class Structure:
    """The parents of every node: O(layers) in all, each asked for when needed."""

    def __init__(self, flow: Flow) -> None:
        """Take the recorded data flow."""
        self.flow = flow
        self._parents: dict[Node, tuple[tuple[Node, Edge], ...]] = {}

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, in the order of a step: forward along the flow, backward against it."""
        paths = [layer.path for layer in self.flow.executed]
        weighted = [path for path in paths if path in self.flow.matrices]
        return (
            DATA,
            *(Node(Signal.ACTIVATION, path) for path in paths),
            LOSS,
            *(Node(Signal.GRADIENT, path) for path in reversed(weighted)),
            OPTIMIZER,
            *(Node(Signal.PARAMETER, path) for path in weighted),
        )

    def parents(self, node: Node) -> tuple[tuple[Node, Edge], ...]:
        """Return the nodes that act on `node` directly, each with how it does."""
        if node not in self._parents:
            self._parents[node] = tuple(self._find(node))
        return self._parents[node]

    def _find(self, node: Node) -> list[tuple[Node, Edge]]:
        path = node.layer
        if node.signal is Signal.LOSS:
            outputs = self.flow.outputs
            return [(Node(Signal.ACTIVATION, layer.path), Edge.FORWARD) for layer in outputs]
        if path is None:
            return []
        if node.signal is Signal.ACTIVATION:
            return self._into_output(path)
        if node.signal is Signal.GRADIENT:
            return self._into_gradient(path)
        return [(Node(Signal.GRADIENT, path), Edge.STEP), (OPTIMIZER, Edge.STEP)]

    def _into_output(self, path: str) -> list[tuple[Node, Edge]]:
        found = [
            (DATA if parent == INPUT else Node(Signal.ACTIVATION, parent), Edge.FORWARD)
            for parent in self.flow.parents(path)
        ]
        if path in self.flow.matrices:
            found.append((Node(Signal.PARAMETER, path), Edge.NEXT))
        return found

    def _into_gradient(self, path: str) -> list[tuple[Node, Edge]]:
        between = self.flow.between(path) if path in self.flow.info else []
        later = [x.path for x in between if x.path in self.flow.matrices and x.path != path]
        passed = [path, *(x.path for x in between if x.path not in self.flow.matrices)]
        ends = not later or any(self.flow.info[p].is_output for p in passed if p in self.flow.info)
        found = [(Node(Signal.GRADIENT, each), Edge.BACKWARD) for each in later]
        found += [(Node(Signal.ACTIVATION, each), Edge.LOCAL) for each in passed]
        return [*found, (LOSS, Edge.BACKWARD)] if ends else found
