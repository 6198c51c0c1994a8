# SPDX-License-Identifier: MIT
"""Oversmoothing: in a deep graph network all nodes converge to one direction, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import theil_sen
from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.view import measured
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerRole
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

GONE = 1e-3
"""Spread over size below which averaging left nothing at all."""
DEEP = 6
"""Layers below which directions that agree are no matter of depth."""
ALIKE = 0.98
DIVERSE = 0.9
"""Mean cosine between nodes from which they point one way, and below which they do not yet."""
ONE_DIRECTION = 1.2
"""Participation ratio of the centred features: what still varies lies along one line."""


def assess(view: CaseView) -> Assessment | None:
    """Fit the spread between rows over depth at the start of a run that does not learn."""
    if view.curve.learned or not view.curve or not len(view.steps) or not _has_graph(view):
        return None
    layers = [x for x in view.flow.weighted if x.role is not LayerRole.EMBEDDING]
    if len(layers) < 4:
        return None
    spread = _at_first(view.activation(ActivationStat.SPREAD))
    values = np.array([spread[view.flow.row[x.path]] for x in layers])
    usable = np.flatnonzero(np.isfinite(values) & (values > 0))
    if len(usable) < 4:
        return None
    slope, _ = theil_sen(usable, np.log(values[usable]))
    last = float(values[usable[-1]])
    is_flat = slope <= -0.1 and last <= 0.25 and last * 4 <= float(values[usable].max())
    along = _one_way(view, [x.path for x in layers])
    if not is_flat and along is None:
        return None
    alike = np.flatnonzero(values[usable] < 0.3)
    place = int(usable[alike[0]] if len(alike) else usable[-1]) if is_flat else along or 0
    layer, step = _graph_layer(layers[place].path), view.label(0)
    what = (
        f"the spread between nodes falls to {figure(last)} of their size"
        if is_flat
        else "the features of all nodes come to lie along one direction"
    )
    return Assessment(
        cause="oversmoothing",
        failure=FailureType.REPRESENTATION_COLLAPSE,
        confidence=0.7 if last > GONE else 0.8,
        description=(
            f"Oversmoothing from {named(layer)} on at step {step}: over {len(usable)} graph layers "
            f"{what}, so nodes cannot be told apart."
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
                "saturating_activations",
                "init_too_small",
                "lr_too_low",
            }
        ),
    )


def _at_first(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first row that was measured, `[L]`: a first update may wreck every layer."""
    rows = measured(values)
    return rows[0] if len(rows) else np.full(values.shape[1], np.nan)


def _graph_layer(path: str) -> str:
    """Return the numbered module that a weight stands in: what averages is the graph layer."""
    owner, _, own = path.rpartition(".")
    return owner if owner.rpartition(".")[2].isdigit() and not own.isdigit() else path


def _one_way(view: CaseView, paths: list[str]) -> int | None:
    """Return the first of the layers from which on all nodes point one way; None where few do.

    Lengths may still differ, by the degree of the node: directions carry what tells nodes apart.
    """
    cosine = _at_first(view.activation(ActivationStat.COSINE))
    rank = _at_first(view.activation(ActivationStat.RANK))
    rows = [view.flow.row[path] for path in paths]
    along, rank = cosine[rows], rank[rows]
    second = slice(len(rows) // 2, len(rows) - 1)
    is_one = len(rows) >= DEEP and along[0] < DIVERSE and np.nanmedian(along[second]) > ALIKE
    if not is_one or np.nanmedian(rank[second]) > ONE_DIRECTION:
        return None
    return int(np.flatnonzero(along > DIVERSE)[0])


def _has_graph(view: CaseView) -> bool:
    """Whether rows are mixed along relations, or a square matrix or edge list enters."""
    if "message_passing" in view.observations:
        return True
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
