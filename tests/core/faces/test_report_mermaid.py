# SPDX-License-Identifier: MIT
"""The causal graph as Mermaid text: well-formed whatever the names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.report.graph import MOST_NODES, causal_graph
from neuraldbg.report.mermaid import escaped

NODE = re.compile(r'^\w+(\(\[|\[\(|\[)"[^"]*"(\]\)|\)\]|\])(:::\w+)?$')
EDGE = re.compile(r"^(\w+) (-->|==>|-\. [a-z ]+ \.->) (\w+)$")


def parsed(text: str) -> tuple[set[str], list[tuple[str, str]]]:
    """Ids of nodes and pairs of edges; fails on a line that is neither."""
    first, *lines = text.splitlines()
    assert first == "graph TD"
    nodes, edges = set(), []
    for line in map(str.strip, lines):
        if NODE.match(line):
            nodes.add(re.match(r"\w+", line).group())
        elif edge := EDGE.match(line):
            edges.append((edge[1], edge[3]))
        else:
            assert line.startswith("classDef "), line
    return nodes, edges


def test_graph_joins_causes_events_and_layers(failed, kit):
    nodes, edges = parsed(failed.export_mermaid_causal_graph())
    assert {"H0", "H1", f"E_{kit.FLAT.id}", f"E_{kit.GONE.id}", "L0"} <= nodes
    assert ("H0", f"E_{kit.FLAT.id}") in edges
    assert (f"E_{kit.FLAT.id}", f"E_{kit.GONE.id}") in edges
    assert (f"E_{kit.GONE.id}", "L0") in edges


def test_edges_join_nodes_that_exist_and_differ(failed):
    nodes, edges = parsed(failed.export_mermaid_causal_graph())
    assert {end for edge in edges for end in edge} <= nodes
    assert all(source != target for source, target in edges)
    assert len(set(edges)) == len(edges)


def test_healthy_graph_is_one_sentence(healthy):
    nodes, edges = parsed(healthy.export_mermaid_causal_graph())
    assert (nodes, edges) == ({"healthy"}, [])


def test_hostile_names_are_escaped(hostile):
    text = hostile.export_mermaid_causal_graph()
    parsed(text)
    assert "<script" not in text


def test_layers_are_joined_over_layers_not_shown(record, kit):
    last = kit.event(layer="net.2", step=31)
    inquiry = record(
        events=[kit.GONE, last],
        hypotheses=[kit.hypothesis(evidence=(kit.GONE, last), causal_chain=())],
    )
    _, edges = parsed(inquiry.export_mermaid_causal_graph())
    assert ("L0", "L1") in edges


def test_large_graph_is_cut_and_says_so(record, kit):
    events = [kit.event(step=step, step_range=(step - 1, step)) for step in range(1, 49)]
    accused = [
        kit.hypothesis(cause=f"cause_{index}", evidence=tuple(events[index * 12 :][:12]))
        for index in range(4)
    ]
    inquiry = record(events=events, hypotheses=accused)
    graph = causal_graph(inquiry.diagnosis())
    assert len(graph.nodes) <= MOST_NODES
    assert graph.left_out > 0
    assert f"{graph.left_out} more" in inquiry.export_mermaid_causal_graph()


@given(st.text())
def test_any_text_stays_within_its_quotes(text):
    shown = escaped(text)
    assert not set(shown) & set('"<>`[](){}|\n')
    assert re.sub(r"#\d+;", "", shown).count("#") == 0


@pytest.mark.parametrize("text", ["1. list", "# head", "- item", "**bold**", "a_b_c", "end"])
def test_markdown_is_not_taken_for_markup(text):
    assert not set(escaped(text)) & set("*_`")
