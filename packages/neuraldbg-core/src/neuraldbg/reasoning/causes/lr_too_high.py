# SPDX-License-Identifier: MIT
"""Learning rate too high: steps move the weights by too large a share, and the loss shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.symptoms import dead_layers, departure_row
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

LARGE_STEP = 0.03
"""Update / weight RMS per step. Karpathy's rule of thumb is 1e-3 and DeepDiagnosis alarms above
1e-1; thirty times the former is far outside what healthy runs sustain."""
HUGE_STEP = 0.1


def assess(view: CaseView) -> Assessment | None:
    """Compare step sizes before the symptom with what weights can bear."""
    curve = view.curve
    if not curve or not view.is_failing or len(view.run.models) > 1:
        return None
    start = float(quiet(np.nanmedian, view.step_size[:6])) if len(view.step_size) else float("nan")
    row = departure_row(view)
    before = start
    if row is not None:
        before = float(quiet(np.nanmedian, view.step_size[max(0, row - 6) : row + 1]))
    largest = float(np.nanmax([start, before])) if np.isfinite([start, before]).any() else 0.0
    rise = _rise(view)
    dead = dead_layers(view, 0.9)
    if any(d.is_from_start for d in dead):
        dead = []
    symptom = curve.is_diverged or rise > 1.5 or bool(dead) or _swings(view)
    if not symptom and not curve.is_stuck:
        return None
    if largest < LARGE_STEP and not (curve.is_diverged and largest > LARGE_STEP / 3):
        return None
    confidence = 0.15
    confidence += 0.2 if largest > HUGE_STEP else 0.1 if largest > LARGE_STEP else 0.0
    confidence += 0.35 if symptom else 0.0
    confidence += 0.1 if curve.is_diverged and rise > 3 else 0.0
    onset_row = _onset(view, row)
    onset = view.label(onset_row)
    lr = float(view.lr[onset_row]) if np.isfinite(view.lr[onset_row]) else float("nan")
    what = "the loss diverged" if curve.is_diverged else "the loss never settled"
    if dead:
        what = f"units of {dead[0].layer.path!r} were pushed out of reach and died"
    evidence = view.events(types=["optimizer_instability", "gradient_health_transition"])
    return Assessment(
        cause="lr_too_high",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=confidence,
        description=(
            f"Learning rate too high at step {onset}: with lr {figure(lr)} one step moved the "
            f"weights by {100 * largest:.3g} % of their size (usual: about 0.1 %), and {what}."
        ),
        onset=onset,
        onset_range=(onset, max(onset, view.label(row) if row is not None else onset)),
        evidence=evidence,
        chain=(
            link(
                None, onset, f"lr {figure(lr)} makes steps of {100 * largest:.3g} % of the weights"
            ),
            link(None, view.label(row) if row is not None else onset, what),
        ),
        explains=frozenset({"dying_relu", "unknown", "labels_unrelated_to_inputs"}),
    )


def _rise(view: CaseView) -> float:
    """Return the highest of the first losses after an update over the very first loss."""
    finite = view.curve.finite
    if len(finite) < 3 or view.curve.is_signed or finite[0] <= 0:
        return 1.0
    return float(np.max(finite[1:12]) / finite[0])


def _swings(view: CaseView) -> bool:
    """Whether the late loss jumps up and down from step to step by half its level."""
    tail = view.curve.finite[len(view.curve.finite) // 2 :]
    return len(tail) > 20 and view.curve.noise > 0.5 * abs(float(np.median(tail)))


def _onset(view: CaseView, departure: int | None) -> int:
    """The step from which the lr was in force: the start, or where it rose before the departure."""
    if departure is None or departure < 30:
        return 0
    lr = view.lr[: departure + 1]
    if not np.isfinite(lr).any():
        return departure
    now = lr[-1]
    lower = np.flatnonzero(lr < 0.5 * now)
    if len(lower):
        return int(min(lower[-1] + 1, departure))
    if view.curve.level(max(0, departure - 10), departure) > 0.8 * view.curve.start:
        return 0
    return departure
