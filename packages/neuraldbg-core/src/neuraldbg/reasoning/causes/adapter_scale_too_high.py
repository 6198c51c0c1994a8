# SPDX-License-Identifier: MIT
"""Adapter scale too high: the adapter drowns its frozen base within a few updates."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import chance_loss
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

LEAP = 1.3
"""Highest of the first losses after an update over the first: an adapter that starts at zero leaves
the first loss to the base, and a sound one does not undo it at once."""
SOON = 15
WRECKED = 3.0
"""First loss over that of an ignorant model. Heuristic: a base on data that it has not seen yet is
about as bad as an ignorant one, and confident mistakes make it half as bad again."""
EXPLAINED = frozenset(
    {
        "lr_too_high",
        "frozen_parameters",
        "unknown",
        "labels_unrelated_to_inputs",
        "saturating_activations",
        "missing_gradient_clipping",
        "init_too_large",
    }
)


def assess(view: CaseView) -> Assessment | None:
    """Look for adapters on a frozen base that wreck its loss, by their start or first updates."""
    layers = adapters(view)
    finite = view.curve.finite
    if view.curve.is_signed:
        return None
    if not layers:
        return _from_start(view) if len(finite) >= SOON else None
    if len(finite) < (2 if view.is_broken else SOON):
        return None
    if view.curve.end < 0.8 * finite[0] and not view.curve.is_poor:
        return None  # below what the base alone scored: the adapters do their work
    leap = float(np.max(finite[1:SOON]) / max(finite[0], 1e-12))
    ended = view.curve.end / max(finite[0], 1e-12)
    if leap < LEAP and not (view.is_broken or ended > LEAP):
        return None
    values = view.curve.values
    above = np.flatnonzero(~(values[1:] <= LEAP * finite[0]))
    step, leapt = view.label(0), int(view.curve.steps[int(above[0]) + 1]) if len(above) else 0
    return Assessment(
        cause="adapter_scale_too_high",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.8,
        description=(
            f"Adapter scale too high in {named(layers[0])} from step {step}: the adapters start at "
            f"zero on a frozen base, and by step {leapt} the loss had leapt to {figure(leap)} "
            "times its start: what they add outweighs the base."
        ),
        layer=layers[0],
        onset=step,
        onset_range=(step, max(leapt, step)),
        evidence=view.events(types=["optimizer_instability", "gradient_health_transition"]),
        chain=(
            link(layers[0], step, "the adapter's output is scaled far above the base's"),
            link(None, leapt, "the first updates undo what the base knew"),
        ),
        explains=EXPLAINED,
    )


def _from_start(view: CaseView) -> Assessment | None:
    """Look for low-rank pairs of which no factor starts at zero, beside a base that is trained.

    What they add is noise from the first forward on: it shows where the first loss of a trained
    base is far above what an ignorant model scores.
    """
    chance, first = chance_loss(view), view.curve.first
    pairs = low_rank_pairs(view)
    if chance is None or "pretrained" not in view.observations or not pairs:
        return None
    if not (first > WRECKED * chance and view.curve.end > chance):
        return None
    step = view.label(0)
    return Assessment(
        cause="adapter_scale_too_high",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.8,
        description=(
            f"Adapter scale too high in {named(pairs[0])} from step {step}: both factors of the "
            "adapters start at random values on a trained base, so they add noise to it from the "
            f"first forward on, and the first loss is {figure(first)} where chance is "
            f"{figure(chance)}."
        ),
        layer=pairs[0],
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["optimizer_instability", "gradient_health_transition"]),
        chain=(
            link(pairs[0], step, "no factor of the adapter starts at zero"),
            link(None, step, "what the base knew is drowned before any update"),
        ),
        explains=EXPLAINED,
    )


def adapters(view: CaseView) -> list[str]:
    """Return layers with a trainable matrix that starts at zero, beside many frozen ones."""
    matrices = [p for p in view.run.parameters if len(p.shape) > 1]
    frozen = [p for p in matrices if not p.is_trainable]
    if len(frozen) < 0.3 * len(matrices):
        return []
    return [p.layer for p in matrices if p.is_trainable and p.initial_rms == 0.0]


def has_low_rank_pair(view: CaseView) -> bool:
    """Whether some module trains two factors of low rank.

    However they start, what lies beside them is frozen on purpose.
    """
    return bool(low_rank_pairs(view))


def low_rank_pairs(view: CaseView) -> list[str]:
    """Return the modules that train two factors of low rank, `[r, I]` and `[O, r]`."""
    trainable: dict[str, list[tuple[int, ...]]] = {}
    for one in view.run.parameters:
        if one.is_trainable and len(one.shape) == 2:
            # The factors are parameters of one module, or weights of two beside each other.
            for owner in dict.fromkeys((one.layer, one.layer.rpartition(".")[0] or one.layer)):
                trainable.setdefault(owner, []).append(one.shape)
    return [
        owner
        for owner, shapes in trainable.items()
        if any(
            down[0] == up[1] and 2 * down[0] <= min(down[1], up[0])
            for down, up in permutations(shapes, 2)
        )
    ]
