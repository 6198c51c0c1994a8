# SPDX-License-Identifier: MIT
"""Recurrent vanishing: the gradient does not reach early time steps of a recurrent layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.cause import Assessment, link, named
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

FAR_BELOW = 1e-3
"""Gradient that reaches the first time steps, relative to the last ones. Heuristic: three orders
below, what a step changes is decided by the last time steps alone (Bengio et al. 1994)."""
ENOUGH_STEPS = 60


def assess(view: CaseView) -> Assessment | None:
    """Look for a recurrent layer over long sequences in a run that does not learn."""
    curve = view.curve
    if not curve or not view.flow.recurrent or view.is_broken or curve.is_diverged:
        return None
    if not curve.is_stuck or curve.is_falling or len(curve) < ENOUGH_STEPS:
        return None
    weakest = _weakest(view)
    if weakest is None:
        return None
    path, ratio, length = weakest
    step = view.label(0)
    return Assessment(
        cause="recurrent_vanishing",
        failure=FailureType.VANISHING_GRADIENTS,
        confidence=0.8 if ratio < FAR_BELOW**2 else 0.65,
        description=(
            f"Gradient vanishing originated in {named(path)} at step {step}: of the gradient at "
            f"the last of {length} time steps, {ratio:.1g} reaches the first ones, and the loss "
            "stays where it was."
        ),
        layer=path,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["gradient_health_transition", "optimizer_instability"]),
        chain=(link(path, step, "the gradient shrinks at every time step on its way back"),),
        explains=frozenset({"unknown", "labels_unrelated_to_inputs"}),
    )


def _weakest(view: CaseView) -> tuple[str, float, int] | None:
    """Return (path, early / late gradient, time steps) of the recurrent layer that forgets most.

    Over the observations of a layer the best ratio counts: a layer that once remembered can.
    """
    best: dict[str, tuple[float, int]] = {}
    for seen in view.observations.get("recurrent_gradient", []):
        path = seen.layer or ""
        ratio = float(seen.figures["early_late_ratio"])
        if path not in best or ratio > best[path][0]:
            best[path] = (ratio, int(seen.figures["time_steps"]))
    far = [(ratio, path, length) for path, (ratio, length) in best.items() if ratio < FAR_BELOW]
    if not far:
        return None
    ratio, path, length = min(far)
    return path, ratio, length
