# SPDX-License-Identifier: MIT
"""Labels unrelated to inputs: everything works, yet the loss stays at (or goes to) chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.curve import Curve
    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.events import SemanticEvent

ENOUGH_STEPS = 100
SOUND = 0.05
"""Update over weight up to which steps are no trouble themselves. Heuristic: usual is 1e-3."""


def assess(view: CaseView) -> Assessment | None:
    """By exclusion: at chance over known classes, with sound gradients and steps."""
    curve = view.curve
    chance = view.objective.ignorant
    if not np.isfinite(chance) or len(curve) < ENOUGH_STEPS or view.is_broken or curve.is_falling:
        return None
    if not LIKE * chance < curve.end < 1.3 * chance:
        return None
    size = float(quiet(np.nanmedian, view.step_size)) if len(view.step_size) else float("nan")
    if not 1e-4 < size < SOUND:
        return None
    if curve.best < 0.88 * chance:
        return _lost(view, chance)
    if curve.end < 0.95 * chance or _may_know(view):
        return None
    step = view.label(0)
    return _assessment(
        (step, step),
        f"Labels unrelated to inputs from step {step}: after {len(curve)} steps of sound size "
        f"the loss is {figure(curve.end)}, and a constant answer scores {figure(chance)}.",
        "no pattern carries over from one batch to the next",
        view.events(types=["optimizer_instability"], state="loss_plateau"),
    )


def _may_know(view: CaseView) -> bool:
    """Whether the run may have begun where it can learn no more.

    Weights that come trained show no fall, and how far numbers vary is known from a batch or two: a
    model that explains a tenth of them lies within that error.
    """
    return "pretrained" in view.observations and not view.objective.is_classification


def _assessment(
    reach: tuple[int, int], description: str, reason: str, evidence: tuple[SemanticEvent, ...]
) -> Assessment:
    """Return the assessment of labels that came loose in the middle of these steps."""
    step = sum(reach) // 2
    return Assessment(
        cause="labels_unrelated_to_inputs",
        failure=FailureType.OBJECTIVE_MISMATCH,
        confidence=0.4,
        description=description,
        onset=step,
        onset_range=reach,
        evidence=evidence,
        chain=(link(None, step, reason),),
        explains=frozenset({"unknown"}),
    )


LIKE = 0.85
"""Share of what a constant answer scores that is no better. Heuristic: classes may be uneven."""
KNOWN = 0.8
"""Share of what a constant answer scores below which something had been learned. Heuristic."""
AROUND = 10
"""Steps on either side of the one on which what was learned is worth nothing any more."""


def _lost(view: CaseView, chance: float) -> Assessment | None:
    """Report the step from which on what had been learned is worth nothing.

    Of classes only: numbers that are targets may be another network's, which is replaced at times,
    and a critic that tells two kinds apart is meant to end at chance.
    """
    curve = view.curve
    if not view.objective.is_classification or len(view.run.models) > 1 or curve.is_signed:
        return None
    at = _fallen_at(curve, chance)
    if at is None:
        return None
    step = int(curve.steps[at])
    row = view.row_at(step)
    size = float(quiet(np.nanmax, view.step_size[max(0, row - AROUND) : row]))
    if size >= SOUND:  # of the steps before; NaN: not measured just there, and usually sound
        return None
    before, after = curve.level(at - AROUND, at), curve.level(at, at + AROUND)
    return _assessment(
        (step - 2, step + 2),
        f"Labels unrelated to inputs from step {step}: the loss went from {figure(before)} to "
        f"{figure(after)} at once and ended at {figure(curve.end)}, and a constant answer "
        f"scores {figure(chance)}; steps were of sound size.",
        "what had been learned holds for no batch any more",
        view.events(types=["optimizer_instability"]),
    )


def _fallen_at(curve: Curve, chance: float) -> int | None:
    """Return the index from which on a loss is no better than chance, at once and for good.

    Weights that blow up or are replaced take the loss far above chance, or have other causes that
    say so; labels that come from nowhere take a sound model to chance, or above for a while.
    """
    values, smooth = curve.values, curve.smooth
    below = np.flatnonzero(smooth < (curve.best + chance) / 2)
    if not len(below):
        return None
    last, half = int(below[-1]), curve.width // 2 + 1
    near = range(max(AROUND, last - half), min(len(values), last + half))
    if not near or len(values) - near[-1] < ENOUGH_STEPS:
        return None
    rises = [curve.level(i, i + AROUND) - curve.level(i - AROUND, i) for i in near]
    at = _split(values, near[int(np.nanargmax(rises))])
    before, after = curve.level(at - AROUND, at), curve.level(at, at + AROUND)
    if not before < KNOWN * chance or not after > LIKE * chance:
        return None
    known = np.flatnonzero(smooth[:at] < KNOWN * chance)
    was_there = float(np.nanmax(smooth[known[0] : max(at - half, known[0] + 1)])) > LIKE * chance
    stays = float(np.nanmin(smooth[at + half :])) > LIKE * chance
    return at if stays and not was_there else None  # else it comes and goes


def _split(values: NDArray[np.float64], near: int) -> int:
    """Return the index at which two levels fit the values around `near` best."""
    places = range(max(2, near - AROUND // 2), min(len(values) - 2, near + AROUND // 2 + 1))
    parts = [(values[max(0, i - AROUND) : i], values[i : i + AROUND]) for i in places]
    errors = [len(a) * float(np.var(a)) + len(b) * float(np.var(b)) for a, b in parts]
    return places[int(np.nanargmin(errors))]
