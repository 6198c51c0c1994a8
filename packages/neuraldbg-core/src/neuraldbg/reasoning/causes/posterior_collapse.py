# SPDX-License-Identifier: MIT
"""Posterior collapse: the code of a VAE equals its prior, and the decoder ignores it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.run import LayerInfo

FLAT = 0.25
"""RMS of mean and log-variance below which the posterior is the prior, N(0, 1)."""

ENOUGH_STEPS = 50
"""A fresh VAE's code is near the prior too: give it time to leave."""


def assess(view: CaseView) -> Assessment | None:
    """Look for twin heads (mean, log-variance) that both went to zero."""
    if len(view.steps) < ENOUGH_STEPS or view.is_broken:
        return None
    rms = view.activation(ActivationStat.RMS)
    for mean, log_var in _twins(view):
        rows = view.flow.row[mean.path], view.flow.row[log_var.path]
        late = [float(view.late(rms[:, r])) for r in rows]
        if not all(np.isfinite(v) and v < FLAT for v in late):
            continue
        outputs = [x for x in view.flow.outputs if x.path not in {mean.path, log_var.path}]
        flat = np.flatnonzero((rms[:, rows[0]] < FLAT) & (rms[:, rows[1]] < FLAT))
        step = view.label(int(flat[0])) if len(flat) else view.label(0)
        return Assessment(
            cause="posterior_collapse",
            failure=FailureType.REPRESENTATION_COLLAPSE,
            confidence=0.85,
            description=(
                f"Posterior collapse in {named(mean.path)} by step {step}: mean and "
                f"log-variance went to {figure(late[0])} and {figure(late[1])} (RMS), which is the "
                "prior, so the code carries nothing and the decoder gives one average."
            ),
            layer=mean.path,
            onset=step,
            onset_range=(view.label(0), step),
            evidence=view.events(types=["representation_collapse", "activation_regime_shift"]),
            chain=(
                link(mean.path, step, "the KL term pulls the posterior onto the prior"),
                link(outputs[0].path if outputs else None, step, "the decoder ignores the code"),
            ),
            explains=frozenset(
                {"embedding_collapse", "labels_unrelated_to_inputs", "unknown", "mode_collapse"}
            ),
        )
    return None


def _twins(view: CaseView) -> list[tuple[LayerInfo, LayerInfo]]:
    """Return pairs of layers of one size that read the same layer and feed both loss and decoder.

    The KL term reads mean and log-variance directly, so both are outputs; the decoder reads them
    too. Queries and keys, or two heads of one trunk, lack one or the other.
    """
    pairs = []
    layers = view.flow.weighted
    for i, first in enumerate(layers):
        for second in layers[i + 1 :]:
            same = first.units == second.units and set(first.parents) == set(second.parents)
            if not (first.is_output and second.is_output):
                continue
            if same and first.parents and first.kind == second.kind and first.units > 0:
                readers = [x for x in layers if first.path in view.flow.ancestors(x.path)]
                both = [x for x in readers if second.path in view.flow.ancestors(x.path)]
                if both:
                    pairs.append((first, second))
    return pairs
