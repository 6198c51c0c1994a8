# SPDX-License-Identifier: LicenseRef-Proprietary
"""The causal graph of a run: anomalous nodes, roots among them, and paths from root to symptom."""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING

from neuraldbg.reasoning.view import CaseView
from neuraldbg.schema.hypotheses import CausalLink
from neuraldbg_engine.graph.anomalies import Anomaly, anomalies
from neuraldbg_engine.graph.nodes import Node, Signal, Structure
from neuraldbg_engine.graph.words import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from neuraldbg.trace import Trace

ORDER = {signal: place for place, signal in enumerate(Signal)}
POSSIBLE = 0.25
"""Probability of having begun first from which an anomaly may have led to another. Heuristic: where
nothing is known it is a half; a quarter still lets two wide onsets stand in either order."""
LONGEST = 8
"""Links of a path: the first and the last ones are kept, what lies between is told as one."""


class CausalGraph:
    """Layers x signals x steps of one run, with what is anomalous in it.

    The structure is known, not discovered: edges are the recorded data flow, its reverse for
    gradients, and the optimizer's step from one forward to the next.
    """

    def __init__(self, trace: Trace, view: CaseView | None = None) -> None:
        """Take a trace; `view` is core's view of the same trace where there is one already."""
        self.view = view if view is not None else CaseView(trace)
        self.structure = Structure(self.view.flow)

    @cached_property
    def anomalies(self) -> Mapping[Node, Anomaly]:
        """Anomalous nodes, in the order in which they became so."""
        found = anomalies(self.view)
        return {node: found[node] for node in sorted(found, key=lambda n: self._key(found[n]))}

    def _key(self, one: Anomaly) -> tuple[int, int, int, str]:
        """Return the place of an anomaly in the run: step, phase of the step, along the signal."""
        signal, layer = one.node.signal, one.node.layer
        place = self.view.flow.place.get(layer or "", 0)
        backward = signal is Signal.GRADIENT
        return one.onset.best, ORDER[signal], -place if backward else place, layer or ""

    @cached_property
    def _rank(self) -> dict[Node, int]:
        return {node: rank for rank, node in enumerate(self.anomalies)}

    @cached_property
    def _through(self) -> dict[Node, int]:
        """Nearest anomalous ancestors of every node, as bits by rank; sound nodes pass them on.

        A few sweeps in the order of a step: the second one carries what weights bring along from
        the step before.
        """
        nodes = [*self.structure.nodes, *(n for n in self.anomalies if n not in self._known)]
        reach = dict.fromkeys(nodes, 0)
        is_settled = False
        while not is_settled:
            is_settled = True
            for node in nodes:
                bits = 0
                for parent, _ in self.structure.parents(node):
                    rank = self._rank.get(parent)
                    bits |= reach.get(parent, 0) if rank is None else 1 << rank
                if bits != reach[node]:
                    reach[node], is_settled = bits, False
        return reach

    @cached_property
    def _known(self) -> frozenset[Node]:
        return frozenset(self.structure.nodes)

    def _leading(self, node: Node) -> Iterator[Node]:
        """Yield the nearest anomalous nodes that can have led to `node`, the earliest first."""
        child, own = self.anomalies[node], self._rank[node]
        bits = self._through[node] & ((1 << own) - 1)
        while bits:
            rank = (bits & -bits).bit_length() - 1
            bits &= bits - 1
            parent = self._ordered[rank]
            if self.anomalies[parent].onset.lead(child.onset) >= POSSIBLE:
                yield parent

    @cached_property
    def _ordered(self) -> tuple[Node, ...]:
        return tuple(self.anomalies)

    def explaining(self, node: Node) -> list[Node]:
        """Return the nearest anomalous nodes that can have led to `node`, the earliest first.

        What lies between them is sound, or not measured: the signal passed through it.
        """
        return list(self._leading(node))

    def roots(self) -> list[Anomaly]:
        """Return the anomalous nodes that no earlier anomalous node explains, the earliest first.

        Of two that began at the same time the clearer one comes first.
        """
        free = [
            one for node, one in self.anomalies.items() if next(self._leading(node), None) is None
        ]
        return sorted(free, key=lambda one: (one.onset.best, -one.grade, self._key(one)))

    def route(self, symptom: Node, root: Node | None = None) -> list[Node]:
        """Return the anomalous nodes from a root to a symptom, both included.

        Args:
            symptom: An anomalous node; any other gives an empty route.
            root: Where it is to begin; where that does not lead to the symptom, or is None, the
                route goes back along the earliest explanation of each node.
        """
        if symptom not in self.anomalies:
            return []
        if root is not None and root in self.anomalies:
            found = self._between(root, symptom)
            if found:
                return found
        route = [symptom]
        while (parent := next(self._leading(route[-1]), None)) is not None:
            route.append(parent)
        return route[::-1]

    def _between(self, root: Node, symptom: Node) -> list[Node]:
        """Return the shortest route from `root` to `symptom`; empty where there is none."""
        came: dict[Node, Node] = {}
        todo, seen = deque([symptom]), {symptom}
        while todo:
            node = todo.popleft()
            if node == root:
                route = [node]
                while route[-1] != symptom:
                    route.append(came[route[-1]])
                return route
            for parent in self._leading(node):
                if parent not in seen:
                    seen.add(parent)
                    came[parent] = node
                    todo.append(parent)
        return []

    def path(self, symptom: Node, root: Node | None = None) -> tuple[CausalLink, ...]:
        """Return the links from root to symptom, each with layer, step, mechanism and event."""
        return self.links(self.route(symptom, root))

    def links(self, route: Iterable[Node]) -> tuple[CausalLink, ...]:
        """Return the links of a route of anomalous nodes; a long one is told by its two ends."""
        nodes = list(route)
        left_out = max(len(nodes) - LONGEST, 0)
        if left_out:
            nodes = [*nodes[: LONGEST // 2], *nodes[-(LONGEST - LONGEST // 2) :]]
        links = []
        for place, node in enumerate(nodes):
            one = self.anomalies[node]
            after = nodes[place + 1] if place + 1 < len(nodes) else None
            skipped = left_out if place == LONGEST // 2 - 1 else 0
            links.append(
                CausalLink(
                    layer=place_of(one),
                    step=one.onset.best,
                    mechanism=sentence(one, after, skipped),
                    event=one.event.id if one.event else None,
                )
            )
        return tuple(links)


def place_of(one: Anomaly) -> str | None:
    """Return the layer of an anomaly: its node's, else the one that its event names."""
    if one.node.layer is not None or one.event is None:
        return one.node.layer
    return one.event.layer
