# SPDX-License-Identifier: MIT
"""Oversmoothing: in a deep graph network all nodes converge to one direction, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import theil_sen
from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerRole
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Fit the spread between rows over depth at the start of a run that does not learn."""
    if view.curve.learned or not view.curve or not len(view.steps) or not _has_graph(view):
        return None
    layers = [x for x in view.flow.weighted if x.role is not LayerRole.EMBEDDING]
    if len(layers) < 4:
        return None
    spread = view.early(view.activation(ActivationStat.SPREAD))
    values = np.array([spread[view.flow.row[x.path]] for x in layers])
    usable = np.flatnonzero(np.isfinite(values) & (values > 0))
    if len(usable) < 4:
        return None
    slope, _ = theil_sen(usable, np.log(values[usable]))
    last = float(values[usable[-1]])
    if slope > -0.1 or last > 0.25 or last * 4 > float(values[usable].max()):
        return None
    place = (
        int(usable[np.flatnonzero(values[usable] < 0.3)[0]])
        if (values[usable] < 0.3).any()
        else int(usable[-1])
    )
    layer, step = layers[place].path, view.label(0)
    return Assessment(
        cause="oversmoothing",
        failure=FailureType.REPRESENTATION_COLLAPSE,
        confidence=0.7,
        description=(
            f"Oversmoothing from {named(layer)} on at step {step}: over {len(usable)} graph layers "
            f"the spread between nodes falls to {figure(last)} of their size, so nodes cannot be "
            "told apart."
        ),
        layer=layer,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["representation_collapse"]),
        chain=(
            link(layer, step, "every layer averages over neighbours, and nothing keeps the own"),
        ),
        explains=frozenset(
            {
                "unknown",
                "labels_unrelated_to_inputs",
                "deep_without_residual",
                "init_too_small",
                "lr_too_low",
            }
        ),
    )


def _has_graph(view: CaseView) -> bool:
    """Whether a square matrix or edge list enters: the model works on a graph."""
    for each in view.run.inputs:
        shape = each.shape
        if len(shape) == 2 and shape[0] == shape[1] and shape[0] > 8:
            return True
        if len(shape) == 2 and shape[0] == 2 and "int" in each.dtype:
            return True
    words = ("gcn", "graph", "gnn", "sage", "gat", "gin", "hop", "propag", "messag")
    return any(
        any(w in x.kind.lower() or w in x.path.lower() for w in words) for x in view.flow.executed
    )
