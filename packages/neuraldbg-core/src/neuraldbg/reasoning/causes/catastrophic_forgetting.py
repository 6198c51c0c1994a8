# SPDX-License-Identifier: MIT
"""Catastrophic forgetting: what the model knew is overwritten while it learns something new."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.causes.adapter_scale_too_high import adapters
from neuraldbg.reasoning.causes.lr_too_high import HUGE_STEP
from neuraldbg.reasoning.curve import Curve
from neuraldbg.reasoning.inputs import departures
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.trace import Series

WORSE = 2.0
"""Loss on the data of before over its lowest. Heuristic: overfitting costs tens of percent."""
APART = 5.0
"""Loss over its lowest that no noise of an evaluation reaches on each of several occasions."""
ENOUGH_AFTER = 4
LOST = 0.6
"""Share of an accuracy that is left."""
NEAR = 0.1
"""Share of the run around the turn in which the data must have changed."""
SHARED = 0.5
"""Share of the matrices that must be trained: a frozen body forgets nothing."""
LOSSES = ("loss", "nll", "perplex", "ppl")
SCORES = ("acc", "score", "f1", "auc", "recall", "precision", "iou", "map", "bleu")


def assess(view: CaseView) -> Assessment | None:
    """Look for a record on other data that turned bad, or pre-trained weights that are run over."""
    if not view.curve or not len(view.steps) or view.is_broken or len(view.run.models) > 1:
        return None
    return _seen(view) or _overwritten(view)


def _is_pretrained(view: CaseView) -> bool:
    return "pretrained" in view.observations


def _seen(view: CaseView) -> Assessment | None:
    """Judge what the user recorded beside the main loss: losses and scores of evaluations."""
    if not view.curve.learned and not view.curve.jumps:
        return None
    for name, series, is_score in evaluations(view):
        if len(series.values) < 5:
            continue
        values = np.asarray(series.values, dtype=float)
        is_apart = not is_score and _is_apart(values, view.curve)
        turn = int(np.argmin(values)) if is_apart else turn_of(values, is_score=is_score)
        since = None if turn is None else _changed(view, int(series.steps[turn]))
        if turn is not None and since is not None:
            return _told(view, name, since, values, turn)
    return None


def evaluations(view: CaseView) -> Iterator[tuple[str, Series, bool]]:
    """Yield what was recorded beside the main loss, with whether more of it is better."""
    main = view.trace.loss
    for name, series in view.trace.losses.items():
        if series.steps is not main.steps and name != "loss":
            yield name, series, False
    for name, series in view.trace.metrics.items():
        word = name.lower()
        if any(each in word for each in LOSSES):
            yield name, series, False
        elif any(each in word for each in SCORES):
            yield name, series, True


def turn_of(values: np.ndarray, *, is_score: bool) -> int | None:
    """Return the last index at which a series was still good that ended far worse, else None."""
    curve = Curve(np.arange(len(values)), -values if is_score else values)
    if not np.isfinite(values).all() or len(curve.finite) != len(values):
        return None
    end = float(np.median(values[-max(2, len(values) // 10) :]))
    smooth = np.array([np.median(values[max(0, i - 1) : i + 2]) for i in range(len(values))])
    best = int(np.argmax(smooth)) if is_score else int(np.argmin(smooth))
    if best > len(values) - 3:
        return None
    if is_score:
        is_lost = end < LOST * smooth[best] and smooth[best] > 0
        return int(np.flatnonzero(values >= 0.9 * smooth[best])[-1]) if is_lost else None
    gap = end - smooth[best]
    is_lost = gap > max((WORSE - 1) * abs(smooth[best]), 6 * curve.noise)
    return int(np.flatnonzero(values <= smooth[best] + 0.25 * gap)[-1]) if is_lost else None


def _is_apart(values: np.ndarray, main: Curve) -> bool:
    """Whether each value soon after the lowest is far above it, however they vary.

    A few evaluations of a loss that is thrown about have a noise as large as the rise itself. What
    is still far below where the main loss began is not lost.
    """
    lowest = int(np.argmin(values))
    after = values[lowest + 2 :]
    if len(after) < ENOUGH_AFTER or not values[lowest] > 0 or main.is_signed:
        return False
    return bool((after > max(APART * values[lowest], main.origin)).all())


def _changed(view: CaseView, step: int) -> int | None:
    """Return when the data changed near a step: the start, where the model came trained."""
    if _is_pretrained(view) and step <= view.steps[0] + NEAR * (view.steps[-1] - view.steps[0]):
        return view.label(0)
    width = max(NEAR * (view.steps[-1] - view.steps[0]), 5)
    moved = [view.label(d.row) for d in departures(view) if d.is_lasting]
    jumped = [int(view.curve.steps[index]) for index, _, _ in view.curve.jumps]
    near = [other for other in (*moved, *jumped) if abs(other - step) <= width]
    return min(near, default=None)


def _told(view: CaseView, name: str, step: int, values: np.ndarray, turn: int) -> Assessment:
    return _found(
        view,
        step,
        0.85,
        f"{name!r} went from {figure(float(values[turn]))} to {figure(float(values[-1]))} while "
        f"the loss on the new data is {figure(view.curve.end)}",
    )


def _overwritten(view: CaseView) -> Assessment | None:
    """Look for trained weights that the first steps move by a large share of their size."""
    if not _is_pretrained(view) or adapters(view):
        return None
    matrices = [p for p in view.run.parameters if len(p.shape) > 1]
    if len(view.matrix_rows) < SHARED * len(matrices):
        return None
    start = float(quiet(np.nanmedian, view.step_size[:5]))
    if not start > HUGE_STEP:
        return None
    return _found(
        view,
        view.label(0),
        0.6,
        f"the weights come trained, and the first steps move them by {100 * start:.2g} % of their "
        "size each: what they held is lost before anything new is learned",
    )


def _found(view: CaseView, step: int, confidence: float, what: str) -> Assessment:
    return Assessment(
        cause="catastrophic_forgetting",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=confidence,
        description=f"Catastrophic forgetting from step {step}: {what}.",
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["optimizer_instability"]),
        chain=(
            link(None, step, "updates for the new data move the weights that the old data needs"),
        ),
        explains=frozenset({"unknown", "input_distribution_shift", "stale_second_moment"}),
    )
