# SPDX-License-Identifier: MIT
"""The causal graph: its edges are the recorded ones, roots have no earlier cause, paths lead on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from traces import watched, watched_run

from neuraldbg.reasoning.view import CaseView
from neuraldbg.schema.facts import ActivationStat, GradState, ParameterStat
from neuraldbg.schema.run import INPUT, LayerInfo, LayerRole
from neuraldbg.schema.vocabulary import FailureType
from neuraldbg.testing import make_facts, make_run, steps_of
from neuraldbg_engine.graph import DATA, LOSS, OPTIMIZER, CausalGraph, Edge, Node, Signal, chain_for


def out(path):
    return Node(Signal.ACTIVATION, path)


def gradient(path):
    return Node(Signal.GRADIENT, path)


def weight(path):
    return Node(Signal.PARAMETER, path)


@pytest.fixture(scope="module")
def graphs():
    names = ("healthy", "vanishing_gradient", "exploding_gradient", "dead_layer", "nan_loss")
    return {name: CausalGraph(watched_run(name)) for name in (*names, "nan_input")}


def test_edges_run_forward_backward_through_the_step_and_to_the_next_forward(graphs):
    parents = graphs["healthy"].structure.parents
    assert parents(out("fc1")) == ((DATA, Edge.FORWARD), (weight("fc1"), Edge.NEXT))
    assert parents(out("fc2")) == ((out("fc1"), Edge.FORWARD), (weight("fc2"), Edge.NEXT))
    assert parents(LOSS) == ((out("head"), Edge.FORWARD),)
    assert parents(gradient("head")) == ((out("head"), Edge.LOCAL), (LOSS, Edge.BACKWARD))
    assert parents(gradient("fc1")) == ((gradient("fc2"), Edge.BACKWARD), (out("fc1"), Edge.LOCAL))
    assert parents(weight("fc1")) == ((gradient("fc1"), Edge.STEP), (OPTIMIZER, Edge.STEP))
    assert parents(DATA) == parents(OPTIMIZER) == ()


def test_activation_modules_pass_the_gradient_on(graphs):
    relu = LayerInfo(
        path="act",
        kind="ReLU",
        role=LayerRole.ACTIVATION,
        parents=("a",),
        order=1,
        activation="relu",
    )
    head = LayerInfo(
        path="b", kind="Linear", role=LayerRole.LINEAR, parents=("act",), order=2, is_output=True
    )
    first = LayerInfo(path="a", kind="Linear", role=LayerRole.LINEAR, parents=(INPUT,), order=0)
    run = make_run(first, relu, head)
    named = [p for p in run.parameters if p.layer != "act"]
    run = run.model_copy(update={"parameters": tuple(named)})
    trace = watched(make_facts(run, step) for step in range(3))
    parents = dict(CausalGraph(trace).structure.parents(gradient("a")))
    assert parents[out("act")] is Edge.LOCAL
    assert parents[gradient("b")] is Edge.BACKWARD
    assert LOSS not in parents


def test_size_is_linear_in_layers():
    for count in (10, 200):
        graph = CausalGraph(
            watched(make_facts(make_run(*(f"l{i}" for i in range(count))), s) for s in range(2))
        )
        assert len(graph.structure.nodes) == 3 * count + 3
        edges = sum(len(graph.structure.parents(node)) for node in graph.structure.nodes)
        assert edges <= 8 * count + 8


def test_healthy_run_has_no_clear_anomaly(graphs):
    assert [one for one in graphs["healthy"].anomalies.values() if one.grade >= 0.5] == []


@pytest.mark.parametrize(
    ("run", "root", "step"),
    [
        ("nan_input", DATA, 100),
        ("nan_loss", LOSS, 100),
        ("dead_layer", out("fc2"), 100),
    ],
)
def test_root_is_where_and_when_it_began(graphs, run, root, step):
    first = graphs[run].roots()[0]
    assert first.node == root
    assert first.onset.interval() == (step, step)


def test_roots_have_no_anomalous_parent_that_came_before(graphs):
    for graph in graphs.values():
        for one in graph.roots():
            assert graph.explaining(one.node) == []


def test_vanishing_gradient_of_the_first_layer_is_dated(graphs):
    graph = graphs["vanishing_gradient"]
    one = graph.anomalies[gradient("fc1")]
    assert 98 <= one.onset.best <= 112


def test_path_from_a_dead_layer_leads_to_the_gradient_before_it(graphs):
    links = graphs["dead_layer"].path(gradient("fc1"))
    assert links[0].layer == "fc2"
    assert links[-1].layer == "fc1"
    assert all(link.step is not None and link.mechanism for link in links)
    assert [link.step for link in links] == sorted(link.step for link in links)


def test_path_runs_from_one_step_into_the_next(graphs):
    route = graphs["nan_loss"].route(out("head"))
    assert route[0] == LOSS
    assert {node.signal for node in route} >= {Signal.LOSS, Signal.GRADIENT, Signal.ACTIVATION}


def test_path_starts_at_the_root_that_is_asked_for(graphs):
    graph = graphs["nan_loss"]
    assert graph.route(out("head"), gradient("head"))[0] == gradient("head")
    assert graph.route(out("head"), DATA)[0] == LOSS
    assert graph.route(out("nowhere")) == []


def test_later_anomaly_never_explains_an_earlier_one(graphs):
    for graph in graphs.values():
        order = list(graph.anomalies)
        for node in order:
            for parent in graph.explaining(node):
                assert order.index(parent) < order.index(node)


def test_layers_that_do_not_feed_the_symptom_are_no_cause():
    """Two branches: what breaks in one does not explain the other."""
    layers = [
        LayerInfo(
            path=path,
            kind="Linear",
            role=LayerRole.LINEAR,
            parents=parents,
            order=order,
            activation=None if path == "head" else "relu",
            is_output=path == "head",
        )
        for order, (path, parents) in enumerate(
            [("left", (INPUT,)), ("right", (INPUT,)), ("head", ("left", "right"))]
        )
    ]
    run = make_run(*layers)

    def steps():
        for step in range(80):
            cells = {("left", ActivationStat.NONFINITE): 1.0} if step >= 40 else {}
            if step >= 50:
                cells |= {(None, ActivationStat.NONFINITE): 1.0}
            yield make_facts(run, step, activation=cells)

    graph = CausalGraph(watched(steps()))
    assert out("left") not in graph.explaining(out("right"))
    assert out("left") in graph.explaining(out("head"))


# -- chains ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "failure", "first"),
    [
        ("nan_input", FailureType.DATA_ANOMALY, None),
        ("nan_loss", FailureType.NUMERICAL_ERROR, None),
        ("dead_layer", FailureType.DEAD_NEURONS, "fc2"),
        ("vanishing_gradient", FailureType.VANISHING_GRADIENTS, None),
    ],
)
def test_chain_holds_every_type_and_state_that_the_run_shows_from_its_start_on(
    graphs, run, failure, first
):
    graph = graphs[run]
    links = chain_for(graph, failure, first)
    assert links
    events = {event.id: event for event in graph.view.trace.events}
    told = {(e.event_type, e.to_state) for link in links if (e := events.get(link.event))}
    seen = {(e.event_type, e.to_state) for e in events.values() if e.severity != "info"}
    assert told == seen
    assert all(link.step is not None for link in links)


def test_chain_begins_with_the_links_that_a_hypothesis_brings(graphs):
    from neuraldbg.schema.hypotheses import CausalLink

    head = (CausalLink(layer=None, step=100, mechanism="NaN enters"),)
    links = chain_for(graphs["nan_input"], FailureType.DATA_ANOMALY, None, 100, head)
    assert links[0].mechanism == "NaN enters"
    assert links[0].event is not None
    assert len({link.event for link in links if link.event}) == len([x for x in links if x.event])


def test_link_without_a_step_gets_that_of_its_hypothesis(graphs):
    from neuraldbg.schema.hypotheses import CausalLink

    head = (CausalLink(layer="fc2", step=None, mechanism="units die"),)
    links = chain_for(graphs["dead_layer"], FailureType.DEAD_NEURONS, "fc2", 100, head)
    assert links[0].step == 100


def test_chain_of_a_lesser_hypothesis_ends_at_its_failure(graphs):
    whole, short = (
        chain_for(graphs["nan_loss"], FailureType.NUMERICAL_ERROR, is_whole=is_whole)
        for is_whole in (True, False)
    )
    assert short == whole[: len(short)]
    assert len(short) < len(whole)


def test_run_without_anomaly_keeps_the_links_of_its_hypothesis(graphs):
    assert chain_for(graphs["healthy"], FailureType.TRAINING_WIRING) == ()


def test_same_trace_gives_the_same_chain():
    one, two = (CausalGraph(watched_run("nan_loss")) for _ in range(2))
    assert chain_for(one, FailureType.NUMERICAL_ERROR) == chain_for(
        two, FailureType.NUMERICAL_ERROR
    )


def test_graph_shares_a_view_that_is_there_already():
    trace = watched_run("healthy")
    view = CaseView(trace)
    assert CausalGraph(trace, view).view is view


def test_long_route_is_told_by_its_two_ends():
    run = make_run(*(f"l{i:02}" for i in range(40)))

    def steps():
        for facts in (make_facts(run, s, loss=1.0 if s < 20 else math.nan) for s in range(30)):
            if facts.step >= 20:
                facts.parameter[:, ParameterStat.GRAD_STATE] = GradState.NONFINITE
                facts.parameter[:, ParameterStat.GRAD_NORM] = np.nan
            yield facts

    links = CausalGraph(watched(steps())).path(gradient("l00"))
    assert len(links) == 8
    assert "more" in links[3].mechanism
    assert links[-1].layer == "l00"


def test_steps_are_labels_of_the_run():
    steps = [replace(f, step=f.step * 10) for f in steps_of("nan_loss")]
    assert CausalGraph(watched(steps)).roots()[0].onset.best == 1000
