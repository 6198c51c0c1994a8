# SPDX-License-Identifier: MIT
"""Output range mismatch: the head's activation cannot reach the targets and sits at its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import BOUNDED, RECTIFIERS, flat_share
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerRole
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

STUCK = 0.3
"""Share of outputs at the bound: so many targets lie beyond it."""
DEAD = 0.97
"""From here on the head is dead altogether, which is another cause."""


def assess(view: CaseView) -> Assessment | None:
    """Look at an output layer that is itself rectified or bounded, and stuck at its bound."""
    if not view.is_failing or not view.curve or not len(view.steps) or len(view.run.models) > 1:
        return None
    if not view.run.parameters:
        return None  # nothing that could learn
    for layer in view.flow.outputs:
        row = view.flow.row[layer.path]
        if layer.activation in RECTIFIERS:
            zeros = view.activation(ActivationStat.ZERO_SHARE)[:, row]
            if layer.role is not LayerRole.ACTIVATION:
                zeros = flat_share(view, layer.path)
            stuck = float(view.late(zeros))
            word = "zero"
        elif layer.activation in BOUNDED:
            stuck = float(view.late(flat_share(view, layer.path)))
            word = "at its bound"
        else:
            continue
        if not STUCK < stuck < DEAD:
            continue
        step = view.label(0)
        return Assessment(
            cause="output_range_mismatch",
            failure=FailureType.OBJECTIVE_MISMATCH,
            confidence=0.5,
            description=(
                f"Output range mismatch in {named(layer.path)} from step {step}: the head ends in "
                f"{layer.activation}, {100 * stuck:.0f} % of its outputs are {word}, and the loss "
                f"stays at {figure(view.curve.end)}: the targets may lie where it cannot reach."
            ),
            layer=layer.path,
            onset=step,
            onset_range=(step, step),
            evidence=view.events(types=["activation_regime_shift"], layers=[layer.path]),
            chain=(link(layer.path, step, f"{layer.activation} bounds the outputs"),),
            explains=frozenset({"unknown", "labels_unrelated_to_inputs"}),
        )
    return None
