# SPDX-License-Identifier: MIT
"""The causal graph as Mermaid text, as GitHub, GitLab and many editors draw it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from neuraldbg.report.graph import CausalGraph, EdgeKind, Node, NodeKind, causal_graph

if TYPE_CHECKING:
    from neuraldbg.report.diagnosis import Diagnosis

ARROWS = {
    EdgeKind.LEADS_TO: "-->",
    EdgeKind.SHOWS: "-. shows .->",
    EdgeKind.AGAINST: "-. speaks against .->",
    EdgeKind.IN: "-. in .->",
    EdgeKind.FLOWS: "==>",
}
SHAPES = {
    NodeKind.CAUSE: ('(["', '"])'),
    NodeKind.EVENT: ('["', '"]'),
    NodeKind.LAYER: ('[("', '")]'),
}
STYLES = {
    NodeKind.CAUSE: "fill:#fde2d2,stroke:#b3400f,color:#1d1d1d",
    NodeKind.EVENT: "fill:#fff6d6,stroke:#8a6d00,color:#1d1d1d",
    NodeKind.LAYER: "fill:#dbe9f6,stroke:#2a5d8f,color:#1d1d1d",
}
SPECIAL = {ord(char): f"#{ord(char)};" for char in '#"&<>`*_\\~|{}()[]$%;:'}
"""Characters that Mermaid, or the markdown in its labels, may take for syntax; as entities."""


class Mermaid:
    """A `graph TD` of causes, events and layers; one node with a sentence on a healthy run."""

    name: ClassVar[str] = "mermaid"
    suffix: ClassVar[str] = ".mmd"

    def render(self, diagnosis: Diagnosis) -> str:
        """Return the graph, ending in a newline."""
        graph = causal_graph(diagnosis)
        if not graph.nodes:
            return f'graph TD\n    healthy["{escaped(diagnosis.headline)}"]\n'
        return "\n".join(["graph TD", *(f"    {line}" for line in _lines(graph))]) + "\n"


def _lines(graph: CausalGraph) -> list[str]:
    lines = [_node(node) for node in graph.nodes.values()]
    lines += [f"{edge.source} {ARROWS[edge.kind]} {edge.target}" for edge in graph.edges]
    if graph.left_out:
        lines.append(f'left_out["{graph.left_out} more not drawn"]')
    lines += [f"classDef {kind} {STYLES[kind]}" for kind in NodeKind]
    return lines


def _node(node: Node) -> str:
    opening, closing = SHAPES[node.kind]
    label = "<br/>".join(map(escaped, node.lines))
    return f"{node.id}{opening}{label}{closing}:::{node.kind}"


def escaped(text: str) -> str:
    """Return text that Mermaid shows as it is.

    Example:
        >>> escaped('say "hi"')
        'say #34;hi#34;'
    """
    return " ".join(text.split()).translate(SPECIAL)
