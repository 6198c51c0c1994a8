# SPDX-License-Identifier: MIT
"""The causal graph of a diagnosis: causes, events and layers, for Mermaid and the HTML page."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from neuraldbg.causes import UNKNOWN, words
from neuraldbg.report.diagnosis import Diagnosis, place, shortened
from neuraldbg.schema.keys import failure_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.hypotheses import CausalHypothesis, CausalLink
    from neuraldbg.schema.run import RunInfo

MOST_HYPOTHESES = 4
MOST_EVIDENCE = 5
MOST_NODES = 60
"""Heuristic: what fits a screen and can still be read; the other parts are left to the tables."""


class NodeKind(StrEnum):
    """What a node stands for."""

    CAUSE = "cause"
    EVENT = "event"
    LAYER = "layer"


class EdgeKind(StrEnum):
    """How one node bears on another."""

    LEADS_TO = "leads to"
    SHOWS = "shows"
    AGAINST = "speaks against"
    IN = "in"
    FLOWS = "flows"


@dataclass(frozen=True)
class Node:
    """A cause, an event or a layer, with its label in lines."""

    id: str
    kind: NodeKind
    lines: tuple[str, ...]
    layer: str | None = None


@dataclass(frozen=True)
class Edge:
    """A directed relation between two nodes."""

    source: str
    target: str
    kind: EdgeKind


@dataclass
class CausalGraph:
    """Nodes by id in order of appearance, and edges; no edge twice, none to a missing node."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[Edge, None] = field(default_factory=dict)
    left_out: int = 0
    """Nodes that did not fit."""

    def add(self, node: Node) -> str | None:
        """Add a node, and return its id; None where the graph is full."""
        if node.id not in self.nodes:
            if len(self.nodes) >= MOST_NODES:
                self.left_out += 1
                return None
            self.nodes[node.id] = node
        return node.id

    def join(self, source: str | None, target: str | None, kind: EdgeKind) -> None:
        """Add an edge where both of its ends are in the graph and differ."""
        if source is not None and target is not None and source != target:
            self.edges.setdefault(Edge(source, target, kind))


def causal_graph(diagnosis: Diagnosis) -> CausalGraph:
    """Return the graph of the leading hypotheses; empty on a healthy run.

    Causes lead to the links of their chains, evidence shows causes, layers are joined along the
    data flow (over layers that are not in the graph).
    """
    graph = CausalGraph()
    events = {event.id: event for event in diagnosis.trace.events}
    for index, hypothesis in enumerate(diagnosis.hypotheses[:MOST_HYPOTHESES]):
        _add_hypothesis(graph, index, hypothesis, events)
    _add_layers(graph, diagnosis.trace.run)
    return graph


def _add_hypothesis(
    graph: CausalGraph,
    index: int,
    hypothesis: CausalHypothesis,
    events: Mapping[str, SemanticEvent],
) -> None:
    name = "unknown cause" if hypothesis.cause == UNKNOWN else words(hypothesis.cause)
    lines = (name, f"{hypothesis.confidence:.0%}: {words(hypothesis.failure_type)}")
    cause = graph.add(Node(f"H{index}", NodeKind.CAUSE, lines))
    before = cause
    chained = {link.event for link in hypothesis.causal_chain}
    for link in hypothesis.causal_chain:
        node = graph.add(_link_node(link, events))
        graph.join(before, node, EdgeKind.LEADS_TO)
        before = node or before
    for kind, shown in (
        (EdgeKind.SHOWS, hypothesis.evidence),
        (EdgeKind.AGAINST, hypothesis.counter_evidence),
    ):
        others = [event for event in shown if event.id not in chained]
        for event in others[:MOST_EVIDENCE]:
            graph.join(graph.add(event_node(event)), cause, kind)
        graph.left_out += len(others[MOST_EVIDENCE:])


def _link_node(link: CausalLink, events: Mapping[str, SemanticEvent]) -> Node:
    event = events.get(link.event or "")
    said = shortened(link.mechanism, 90)
    if event is not None:
        head = event_node(event).lines
        return Node(f"E_{event.id}", NodeKind.EVENT, (*head, said), event.layer)
    where = () if link.layer is None else (place(link.layer),)
    when = () if link.step is None else (f"step {link.step:,}",)
    identity = f"{link.layer}|{link.step}|{link.mechanism}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return Node(f"C_{digest}", NodeKind.EVENT, (*where, *when, said), link.layer)


def event_node(event: SemanticEvent) -> Node:
    """Return the node of an event: state and step, then layer."""
    lines = [f"{words(failure_key(event))}, step {event.step:,}"]
    if event.layer is not None:
        lines.append(place(event.layer))
    return Node(f"E_{event.id}", NodeKind.EVENT, tuple(lines), event.layer)


def _add_layers(graph: CausalGraph, run: RunInfo) -> None:
    known = {layer.path: layer for layer in run.layers}
    held = [node for node in graph.nodes.values() if node.layer in known]
    ids: dict[str, str | None] = {}
    for path in dict.fromkeys(str(node.layer) for node in held):
        lines = (path or "(model)", known[path].kind)
        ids[path] = graph.add(Node(f"L{len(ids)}", NodeKind.LAYER, lines, path))
    for node in held:
        graph.join(node.id, ids[str(node.layer)], EdgeKind.IN)
    for path, node_id in ids.items():
        for above in _sources(path, run, ids):
            graph.join(ids[above], node_id, EdgeKind.FLOWS)


def _sources(path: str, run: RunInfo, shown: Mapping[str, object]) -> list[str]:
    """Return the shown layers that feed this one, directly or through layers not shown."""
    parents = {layer.path: layer.parents for layer in run.layers}
    found: dict[str, None] = {}
    seen = {path}
    waiting = list(parents.get(path, ()))
    while waiting:
        each = waiting.pop(0)
        if each in seen:
            continue
        seen.add(each)
        if each in shown:
            found.setdefault(each)
        else:
            waiting += parents.get(each, ())
    return list(found)
