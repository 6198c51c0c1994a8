# SPDX-License-Identifier: MIT
"""Embedding collapse: different samples end at (nearly) the same vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

SPREAD = 0.1
"""Standard deviation between samples over RMS: what is left to tell samples apart."""
COSINE = 0.98
"""Mean cosine between samples: all vectors point one way."""
ALIKE = 0.95
"""Cosine from which the onset counts."""
DIVERSE = 0.9
"""Cosine early in the run below which there was something to lose."""
FALL = 0.6
"""Late spread over early: it must have been lost, not be the way of the task (values of states)."""
ONE_DIRECTION = 1.5
"""Participation ratio of the centred outputs: what still varies lies along one line."""
SHRUNK = 0.5
"""How far apart the vectors lie, of what is usual, from which on they are on their way to one."""
SOON = 50
"""Steps within which outputs may still lie apart though nothing holds them there any more."""
WHOLE = 0.8
"""The same from which on they have not begun to. Heuristic: batches differ by less."""
USUAL = 0.9
"""Quantile over the measured steps of how far apart they lay. Heuristic: a tenth of them is more
than noise."""
MOST = 0.5
"""Share of a layer's units that must be silent before they can be to blame. Heuristic: half."""
TEACHERS = frozenset({"soft_cross_entropy"})
"""Losses of teachers, whose scores (as those of policies) may well become alike."""


def assess(view: CaseView) -> Assessment | None:
    """Look for an output of several units that lost its spread, under a loss of its own kind."""
    if not view.curve or not len(view.steps) or len(view.run.models) > 1 or view.is_broken:
        return None
    objective = view.objective
    if objective.is_supervised or objective.is_policy or TEACHERS & set(objective.names):
        return None
    spread = view.activation(ActivationStat.SPREAD)
    cosine = view.activation(ActivationStat.COSINE)
    rank = view.activation(ActivationStat.RANK)
    found, is_apart = [], False
    is_drawn_together = objective.is_own_target and objective.is_single
    for layer in view.flow.outputs:
        if layer.units == 1:
            continue
        values = spread[:, view.flow.row[layer.path]]
        first, last = float(view.early(values)), float(view.late(values))
        row = view.flow.row[layer.path]
        before, parallel = float(view.early(cosine[:, row])), float(view.late(cosine[:, row]))
        was_diverse = before < DIVERSE or is_drawn_together  # which are close at first already
        alike = parallel > COSINE and was_diverse and last < FALL * first
        has_vanished = _vanished(view, layer.path)
        is_line = float(view.late(rank[:, row])) < ONE_DIRECTION
        alike &= last < SPREAD or is_line or has_vanished
        if alike or (view.objective.is_own_target and has_vanished):
            found.append((layer, first, last))
        is_apart |= not parallel > COSINE
    if not found or (is_apart and not objective.is_own_target):
        return None  # one part of what a model says, a width, may be the same for all samples
    layer, first, last = found[0]
    rows = np.flatnonzero(cosine[:, view.flow.row[layer.path]] > ALIKE)
    since = view.label(0)
    if objective.is_own_target and _vanished(view, layer.path):
        rows, since = _shrinking(view, layer.path)
    step = view.label(int(rows[0])) if len(rows) else view.label(0)
    if step > since > view.label(0):
        since = max(since - SOON, view.label(0))
        turn = view.curve.turn(since, step)
        step = step if turn is None else turn
    return Assessment(
        cause="embedding_collapse",
        failure=FailureType.REPRESENTATION_COLLAPSE,
        confidence=0.8,
        description=(
            f"Embedding collapse in {named(layer.path)} by step {step}: the spread between samples "
            f"fell from {figure(first)} to {figure(last)} of the vectors' length, so all samples "
            "look the same."
        ),
        layer=layer.path,
        onset=step,
        onset_range=(since, step),
        evidence=view.events(types=["representation_collapse"]),
        chain=(link(layer.path, step, "outputs of different samples become one vector"),),
        explains=_explained(view, int(rows[0]) if len(rows) else 0),
    )


def _explained(view: CaseView, row: int) -> frozenset[str]:
    """Units that die after the vectors became one are its consequence, not its cause."""
    plain = frozenset({"labels_unrelated_to_inputs", "unknown", "lr_too_high"})
    silent = view.activation(ActivationStat.SILENT_SHARE)[: row + 1]
    has_died_before = bool((silent > MOST).any())  # NaN, not measured, is no death
    return plain if has_died_before else plain | {"dying_relu"}


def _vanished(view: CaseView, path: str) -> bool:
    """Whether outputs shrank onto the point that they are pulled to, which is itself learned."""
    size = _size(view, path)
    last = size[np.isfinite(size)][-2:]  # of a thinned run few are measured late
    return bool(len(last)) and float(last.max()) < 0.1 * _usual(view, size)


def _size(view: CaseView, path: str) -> NDArray[np.float64]:
    """Return how far apart a layer's outputs lie, absolutely, `[T]`."""
    row = view.flow.row[path]
    rms, spread = view.activation(ActivationStat.RMS), view.activation(ActivationStat.SPREAD)
    return np.asarray(rms[:, row] * spread[:, row], dtype=np.float64)


def _usual(view: CaseView, size: NDArray[np.float64]) -> float:
    """Return how far apart they lay at first, or for a while later on, if that was farther."""
    known = size[np.isfinite(size)]
    return max(float(view.early(size)), float(np.quantile(known, USUAL)) if len(known) else 0.0)


def _shrinking(view: CaseView, path: str) -> tuple[NDArray[np.intp], int]:
    """Return the rows from which on outputs are on their way to one point, and the last before."""
    size = _size(view, path)
    share = size / _usual(view, size)
    large, whole = np.flatnonzero(share >= SHRUNK), np.flatnonzero(share >= WHOLE)
    small = np.flatnonzero(share < SHRUNK)
    small = small[small > large[-1]] if len(large) else small
    return small, view.label(int(whole[-1]) if len(whole) else 0)
