# SPDX-License-Identifier: LicenseRef-Proprietary
"""Chains of hypotheses: from the root that is blamed to the failure, and on to all that it shows.

`Inquiry.trace_causal_chain(name)` cuts a hypothesis' chain after its last link that shows what is
asked for, so a chain goes on past the failure to one link of every other state that the run shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.question import Question
from neuraldbg.schema.hypotheses import CausalLink
from neuraldbg.schema.keys import SYMPTOMS
from neuraldbg.schema.vocabulary import FailureType, Severity
from neuraldbg_engine.graph.anomalies import Anomaly, node_of
from neuraldbg_engine.graph.nodes import LOSS, Node, Signal
from neuraldbg_engine.graph.words import sentence
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg_engine.graph.paths import CausalGraph

SHOWN_BY = {
    FailureType.VANISHING_GRADIENTS: (Signal.GRADIENT, ("vanishing", "shrunk", "absent")),
    FailureType.EXPLODING_GRADIENTS: (Signal.GRADIENT, ("exploding", "grown", "nonfinite")),
    FailureType.DEAD_NEURONS: (Signal.ACTIVATION, ("dead",)),
    FailureType.SATURATED_ACTIVATIONS: (Signal.ACTIVATION, ("saturated",)),
    FailureType.OPTIMIZER_INSTABILITY: (Signal.LOSS, ()),
    FailureType.DATA_ANOMALY: (Signal.INPUT, ()),
    FailureType.NUMERICAL_ERROR: (None, ("nonfinite",)),
    FailureType.TRAINING_WIRING: (None, ("absent", "cleared too early", "not cleared")),
    FailureType.OBJECTIVE_MISMATCH: (Signal.LOSS, ()),
    FailureType.REPRESENTATION_COLLAPSE: (Signal.ACTIVATION, ()),
}
"""Signal (None: any) and states (none: all) by which the graph shows a failure type."""
MOST = 14
"""Links of a chain."""
NEAR = 2
"""Steps by which a hypothesis and a detector may differ about when something began."""


def symptom_of(graph: CausalGraph, failure: FailureType, layer: str | None = None) -> Node | None:
    """Return the node that shows a failure: at the layer, else the first clear one; None: none."""
    signal, states = SHOWN_BY[failure]
    found = [
        one
        for one in graph.anomalies.values()
        if (signal is None or one.node.signal is signal) and (not states or one.state in states)
    ]
    if (
        failure in {FailureType.DATA_ANOMALY, FailureType.NUMERICAL_ERROR}
        and LOSS in graph.anomalies
    ):
        return LOSS
    best = min(found, key=lambda one: (one.node.layer != layer, one.grade < 0.5), default=None)
    return best.node if best else None


def root_of(graph: CausalGraph, symptom: Node, layer: str | None, onset: int | None) -> Node | None:
    """Return the anomalous node at a layer from which a chain to `symptom` can begin.

    Of several the one that became anomalous nearest to the onset; None where none leads there.
    """
    if layer is None:
        return None
    here = [node for node in graph.anomalies if node.layer == layer and node != symptom]
    if onset is not None:
        here.sort(key=lambda node: abs(graph.anomalies[node].onset.best - onset))
    return next((node for node in here if graph.route(symptom, node)[0] == node), None)


def chain_for(
    graph: CausalGraph,
    failure: FailureType,
    layer: str | None = None,
    onset: int | None = None,
    head: Sequence[CausalLink] = (),
    *,
    is_whole: bool = True,
) -> tuple[CausalLink, ...]:
    """Return the chain of a hypothesis: its own links, the path to the failure, what follows.

    Args:
        graph: Of the run.
        failure: What the hypothesis explains.
        layer: The layer that it blames; None: the graph's own root is taken.
        onset: The step from which it acts.
        head: Links that the hypothesis brings along, such as a specialist's: they stand first.
        is_whole: Whether to go on past the failure to every other state that the run shows.

    Returns:
        At most `MOST` links, in order from root to consequence; `head` alone where the run shows
        no anomaly.
    """
    begin = onset if onset is not None else graph.view.label(0)
    dated = [x if x.step is not None else x.model_copy(update={"step": begin}) for x in head]
    told = _with_events(graph, failure, dated)
    symptom = symptom_of(graph, failure, layer)
    route: list[Node] = []
    if symptom is not None:
        route = graph.route(symptom, root_of(graph, symptom, layer, onset))
    start = min((link.step for link in dated if link.step is not None), default=None)
    _append(told, graph.links(route), start)
    for event in _further(graph, told, start) if is_whole else ():
        node = node_of(event)
        if node is None:
            continue
        on = [step for step in graph.route(node) if step not in route]
        links = list(graph.links(on))
        if not links or links[-1].event != event.id:
            links[-1:] = [_shown(event, node)]
        _append(told, links, start)
        route += on
    return tuple(told[:MOST])


def _shown(event: SemanticEvent, node: Node) -> CausalLink:
    """Return the link that says what an event saw at its node."""
    one = Anomaly(node, event.confidence, Onset.exact(event.step), str(event.to_state), event)
    return CausalLink(
        layer=event.layer, step=event.step, mechanism=sentence(one, None), event=event.id
    )


def _with_events(
    graph: CausalGraph, failure: FailureType, head: Sequence[CausalLink]
) -> list[CausalLink]:
    """Return links, each with the event that shows the failure at its place and step, if any."""
    question = Question(keys=SYMPTOMS[failure])
    free = [event for event in graph.view.trace.events if question.is_about(event)]
    taken = {link.event for link in head}
    told = []
    for link in head:
        match = next(
            (
                event
                for event in free
                if event.layer == link.layer
                and link.step is not None
                and abs(event.step - link.step) <= NEAR
                and event.id not in taken
            ),
            None,
        )
        if link.event is None and match is not None:
            taken.add(match.id)
            told.append(link.model_copy(update={"event": match.id}))
        else:
            told.append(link)
    return told


def _append(told: list[CausalLink], links: Iterable[CausalLink], start: int | None) -> None:
    """Add links that say something new and do not lie before the start."""
    known = {(link.layer, link.step, link.mechanism) for link in told}
    events = {link.event for link in told if link.event}
    for link in links:
        if link.event in events or (link.layer, link.step, link.mechanism) in known:
            continue
        if start is not None and link.step is not None and link.step < start - NEAR:
            continue
        told.append(link)
        known.add((link.layer, link.step, link.mechanism))
        if link.event:
            events.add(link.event)


def _further(
    graph: CausalGraph, told: Sequence[CausalLink], start: int | None
) -> list[SemanticEvent]:
    """Return the first event of each type and state that no link shows yet, in order of step."""
    events = {event.id: event for event in graph.view.trace.events}
    shown = {
        (events[link.event].event_type, events[link.event].to_state)
        for link in told
        if link.event in events
    }
    found: dict[tuple[str, str], SemanticEvent] = {}
    for event in sorted(events.values(), key=lambda e: (e.step, e.layer or "", e.id)):
        key = event.event_type, event.to_state
        is_late = start is None or event.step >= start - NEAR
        if event.severity is not Severity.INFO and key not in shown and is_late:
            found.setdefault(key, event)
    return list(found.values())
