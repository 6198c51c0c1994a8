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
    if view.curve.learned or not view.curve or view.is_broken or not len(view.steps):
        return None
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
        explains=frozenset({"unknown", "labels_unrelated_to_inputs", "embedding_collapse"}),
    )
