# SPDX-License-Identifier: MIT
"""Recurrent vanishing: the gradient does not reach early time steps of a recurrent layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.facts import Observation

LOST = 1e-3
"""Influence of the first eighth of the time steps on the last output over that of the last eighth.
Orders below, as causes.toml has it; an LSTM at its defaults is there after 30 steps, so the run
must fail too."""
ENOUGH_STEPS = 60


def assess(view: CaseView) -> Assessment | None:
    """Look for a recurrent layer with a short memory in a run that ended where it began."""
    curve = view.curve
    if not curve or view.is_broken or curve.is_diverged or len(curve) < ENOUGH_STEPS:
        return None
    if not curve.is_poor or curve.is_falling:
        return None
    note = _shortest(view)
    if note is None:
        return None
    ratio, length = note.figures["early_late_ratio"], note.figures["time_steps"]
    step = view.label(0)
    return Assessment(
        cause="recurrent_vanishing",
        failure=FailureType.VANISHING_GRADIENTS,
        confidence=0.75 if ratio < LOST**2 else 0.65,
        description=(
            f"Gradient vanishing originated in {named(note.layer)} at step {step}: over "
            f"{length:.0f} time steps the gradient that reaches the first ones is "
            f"{figure(ratio)} of that of the last ones, and the loss stays where it was."
        ),
        layer=note.layer,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["gradient_health_transition", "optimizer_instability"]),
        chain=(
            link(note.layer, step, "the gradient shrinks at every time step on its way back"),
            link(note.layer, step, "what came early in the sequence is not learned"),
        ),
        explains=frozenset({"unknown", "labels_unrelated_to_inputs", "saturating_activations"}),
    )


def _shortest(view: CaseView) -> Observation | None:
    """Return the first measurement of the layer with the shortest memory, where it is lost."""
    notes = [
        note
        for note in view.observations.get("recurrent_gradient", [])
        if note.figures.get("early_late_ratio", 1.0) < LOST
    ]
    first = {note.layer: note for note in sorted(notes, key=lambda n: -n.step)}
    return min(
        first.values(),
        key=lambda n: (n.figures["early_late_ratio"], view.flow.place.get(n.layer or "", 0)),
        default=None,
    )
