# SPDX-License-Identifier: LicenseRef-Proprietary
"""The causal graph of a run: known structure, anomalous nodes, roots, and chains from them."""

from neuraldbg_engine.graph.anomalies import Anomaly, node_of
from neuraldbg_engine.graph.chains import chain_for
from neuraldbg_engine.graph.nodes import DATA, LOSS, OPTIMIZER, Edge, Node, Signal
from neuraldbg_engine.graph.paths import CausalGraph

__all__ = [
    "DATA",
    "LOSS",
    "OPTIMIZER",
    "Anomaly",
    "CausalGraph",
    "Edge",
    "Node",
    "Signal",
    "chain_for",
    "node_of",
]
