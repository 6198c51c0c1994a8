# SPDX-License-Identifier: MIT
"""Recurrent vanishing: the gradient does not reach early time steps of a recurrent layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.cause import Assessment, link, named
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

LONG = 20
"""Time steps from which an ungated cell's gradient is orders smaller at the start (Bengio 1994)."""

ENOUGH_STEPS = 60
LONG_GATED = 100
"""The same for LSTM and GRU, whose gates keep gradients some five times longer."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a recurrent layer over long sequences in a run that does not learn."""
    curve = view.curve
    if not curve or not view.flow.recurrent or view.is_broken or curve.is_diverged:
        return None
    if not curve.is_stuck or curve.is_falling or len(curve) < ENOUGH_STEPS:
        return None
    layer = view.flow.recurrent[0]
    length = max(
        (max(i.shape[1:], default=0) for i in view.run.inputs if len(i.shape) >= 2), default=0
    )
    is_plain = layer.kind.lower().startswith("rnn")
    if length < (LONG if is_plain else LONG_GATED):
        return None
    step = view.label(0)
    return Assessment(
        cause="recurrent_vanishing",
        failure=FailureType.VANISHING_GRADIENTS,
        confidence=0.6 if is_plain else 0.4,
        description=(
            f"Gradient vanishing originated in {named(layer.path)} at step {step}: over up to "
            f"{length} time steps the {layer.kind} passes almost no gradient to the early ones, and "
            "the loss stays where it was."
        ),
        layer=layer.path,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["gradient_health_transition", "optimizer_instability"]),
        chain=(link(layer.path, step, "the gradient shrinks at every time step on its way back"),),
        explains=frozenset({"unknown", "labels_unrelated_to_inputs"}),
    )
