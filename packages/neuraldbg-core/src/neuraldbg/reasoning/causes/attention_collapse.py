# SPDX-License-Identifier: MIT
"""Attention collapse: query and key weights grow until attention is one-hot, and learning stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerRole
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.run import LayerInfo

WORDS = ("query", "key", "to_q", "to_k", "q_proj", "k_proj", "qkv", "to_qk", "wq", "wk", "c_attn")
CERTAIN = 0.98
"""Mean largest attention weight of a row: one-hot."""
LARGE = 6.0
"""RMS of queries or keys: with 16 dimensions per head, logits of 16 * 36 / 4 are of order 100."""


def assess(view: CaseView) -> Assessment | None:
    """Look for one-hot attention rows, or queries and keys that grew far, in a run that fails."""
    if not view.curve or view.is_broken or not len(view.steps):
        return None
    if view.curve.learned:
        is_poor = view.curve.progress < MOST_WAY
        return _sharp(view) if is_poor and _is_sharp_throughout(view) else None
    sharp = _sharp(view)
    if sharp is not None:
        return sharp
    certain = view.activation(ActivationStat.ROW_MAX)
    rms = view.activation(ActivationStat.RMS)
    for layer in view.flow.executed:
        row = view.flow.row[layer.path]
        if layer.activation == "softmax" and not layer.is_output and _is_attention(layer):
            late = float(view.late(certain[:, row]))
            if late > CERTAIN:
                return _found(
                    view,
                    layer.path,
                    f"rows of its softmax are one-hot ({figure(late)})",
                    np.flatnonzero(certain[:, row] > CERTAIN),
                    0.7,
                )
        if any(layer.path.lower().split(".")[-1].startswith(word) for word in WORDS):
            early, late = float(view.early(rms[:, row])), float(view.late(rms[:, row]))
            if late > LARGE and late > 4 * early:
                return _found(
                    view,
                    layer.path,
                    f"queries and keys grew from RMS {figure(early)} to {figure(late)}",
                    np.flatnonzero(rms[:, row] > LARGE),
                    0.6,
                )
    return None


def _sharp(view: CaseView) -> Assessment | None:
    """Look at what the audits measured of each attention: one-hot rows at the end and before it."""
    found = []
    for layer in {note.layer for note in view.observations.get("attention", [])}:
        notes = [n for n in view.observations["attention"] if n.layer == layer]
        one_hot = [n.figures["certain"] > CERTAIN and n.figures["keys"] > 3 for n in notes]
        if len(notes) < 3 or not all(one_hot[-2:]) or notes[-1].step < notes[0].step + SETTLED:
            continue
        first = len(one_hot)
        while first and one_hot[first - 1]:
            first -= 1
        found.append((view.flow.place.get(layer or "", 0), layer or "", notes, first))
    if not found:
        return None
    _, layer, notes, first = min(found, key=lambda x: x[:2])
    early, late = notes[0].figures["entropy_share"], notes[-1].figures["entropy_share"]
    is_initial = first == 0
    what = (
        f"its rows are one-hot before the first update (entropy {figure(late)} of the most)"
        if is_initial
        else f"its rows became one-hot (entropy {figure(early)} of the most, then {figure(late)})"
    )
    rows = np.array([view.row_at(notes[first].step)])
    return _found(view, layer, what, rows, 0.8 if is_initial else 0.75)


MOST_WAY = 0.7
"""Progress from which a run is content with what its attention does. Heuristic."""
DEAD = 0.02
"""Share of the most entropy that is left of rows which are one-hot in all but name."""


def _is_sharp_throughout(view: CaseView) -> bool:
    """Whether every attention was one-hot from the first updates on: no run starts that certain.

    Attention that finds its keys gets there late, and what stands around it may still learn.
    """
    notes = view.observations.get("attention", [])
    first = view.label(0)
    began = [n for n in notes if first < n.step <= first + SETTLED]
    sharp = [n.figures["entropy_share"] < DEAD and n.figures["certain"] > CERTAIN for n in notes]
    return len(began) >= 3 and sum(sharp) > 0.8 * len(notes) and all(sharp[-2:])


SETTLED = 16
"""Steps after which sharp rows are no passing state of the first updates. Heuristic."""


def _is_attention(layer: LayerInfo) -> bool:
    words = ("att", "softmax", "weights")
    return layer.role is LayerRole.ACTIVATION or any(w in layer.path.lower() for w in words)


def _found(
    view: CaseView, layer: str, what: str, rows: np.ndarray, confidence: float
) -> Assessment:
    step = view.label(int(rows[0])) if len(rows) else view.label(0)
    return Assessment(
        cause="attention_collapse",
        failure=FailureType.REPRESENTATION_COLLAPSE,
        confidence=confidence,
        description=f"Attention collapse in {named(layer)} by step {step}: {what}.",
        layer=layer,
        onset=step,
        onset_range=(view.label(0), step),
        evidence=view.events(types=["representation_collapse", "activation_regime_shift"]),
        chain=(link(layer, step, what), link(layer, step, "one-hot rows pass no gradient back")),
        explains=frozenset(
            {"unknown", "labels_unrelated_to_inputs", "embedding_collapse", "missing_warmup"}
        ),
    )
