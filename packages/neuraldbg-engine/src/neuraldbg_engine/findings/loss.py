# SPDX-License-Identifier: LicenseRef-Proprietary
"""The level of the losses: finite, learned, stuck, at chance, below what it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.curve import LEARNED, STUCK
from neuraldbg.reasoning.objective import WEIGHED
from neuraldbg.reasoning.symptoms import departure_row
from neuraldbg_engine.findings.finding import Graded, both, finding, graded, log_ramp, ramp
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case

ENOUGH = 20
"""Losses below which a level is noise."""


@finding(
    "loss.not_finite",
    "definition: NaN and Inf are no losses; Heuristic: a batch that is skipped counts for a third",
)
def not_finite(case: Case) -> Graded | None:
    """The loss became NaN or Inf and stayed, or ended the run."""
    curve = case.view.curve
    if not len(curve):
        return None
    if curve.broke_at is None:
        return graded(0.0)
    stays = curve.is_broken or case.view.is_broken
    return graded(
        1.0 if stays else 0.3,
        f"the loss is not finite at step {curve.broke_at}",
        onset=Onset.exact(curve.broke_at),
        step=curve.broke_at,
    )


@finding(
    "loss.diverged",
    "Heuristic: 1.2 to 3 times its start, beyond 6 sigma of its own noise, as core's curve has it",
)
def diverged(case: Case) -> Graded | None:
    """The loss ended far above where it had been."""
    curve = case.view.curve
    if not curve or curve.is_signed or curve.is_broken:
        return None
    ratio = curve.end / max(abs(curve.start), 1e-12)
    grade = log_ramp(ratio, 1.2, 3.0) if curve.is_diverged else 0.0
    row = departure_row(case.view) if grade else None
    return graded(
        grade,
        f"the loss ended at {ratio:.3g} times its start",
        onset=None if row is None else case.at(row),
        ratio=ratio,
        end=curve.end,
    )


@finding(
    "loss.learned",
    f"core's curve: {STUCK} to {LEARNED} of the way from its origin to 0",
    is_context=True,
)
def learned(case: Case) -> Graded | None:
    """The loss ended clearly below its start."""
    curve = case.view.curve
    if not curve:
        return None
    grade = 0.0 if curve.is_broken else ramp(curve.progress, STUCK, LEARNED)
    return graded(grade, f"progress {curve.progress:.2f}", progress=curve.progress)


@finding(
    "loss.stuck",
    f"core's curve: less than {STUCK} of the way from its origin to 0, twice that is not stuck",
)
def stuck(case: Case) -> Graded | None:
    """The loss never got clearly below its start; of one model, for two balance each other."""
    curve = case.view.curve
    if not curve or len(curve) < ENOUGH or len(case.view.run.models) > 1:
        return None
    grade = 0.0 if curve.is_broken else ramp(curve.best_progress, 2 * STUCK, STUCK)
    gained = round(100 * curve.best_progress)
    return graded(
        grade,
        f"at its best the loss was {gained} % below its start"
        if gained > 0
        else "the loss never got below its start",
        best_progress=curve.best_progress,
    )


@finding(
    "loss.at_chance",
    "definition: entropy of the labels or variance of the targets; Heuristic: within 3 to 10 %",
)
def at_chance(case: Case) -> Graded | None:
    """The loss ended at what the best constant answer scores."""
    curve = case.view.curve
    if not curve or len(curve) < ENOUGH or not curve.ignorant > 0 or curve.is_broken:
        return None
    ratio = curve.end / curve.ignorant
    return graded(
        ramp(abs(ratio - 1), 0.10, 0.03),
        f"it ended at {ratio:.3g} of the loss of a constant answer",
        over_constant=ratio,
        constant_answer=curve.ignorant,
    )


@finding(
    "loss.worse_than_chance",
    "definition: entropy of the labels or variance of the targets; Heuristic: 1.1 to 1.5 times it",
)
def worse_than_chance(case: Case) -> Graded | None:
    """The loss ended above what a constant answer scores: wrong answers, given with confidence."""
    curve = case.view.curve
    if not curve or len(curve) < ENOUGH or not curve.ignorant > 0 or curve.is_broken:
        return None
    ratio = curve.end / curve.ignorant
    return graded(
        log_ramp(ratio, 1.1, 1.5),
        f"it ended at {ratio:.3g} of the loss of a constant answer",
        over_constant=ratio,
        constant_answer=curve.ignorant,
    )


@finding(
    "loss.starts_high",
    "Karpathy 2019, A Recipe for Training Neural Networks; Heuristic: 3 to 20 times",
)
def starts_high(case: Case) -> Graded | None:
    """The very first loss is far above that of a constant answer."""
    curve = case.view.curve
    if not curve or not curve.ignorant > 0:
        return None
    ratio = curve.first / curve.ignorant
    return graded(
        log_ramp(ratio, 3.0, 20.0),
        f"the first loss is {ratio:.3g} times that of a constant answer",
        onset=case.start if case.rows else None,
        over_constant=ratio,
        first=curve.first,
    )


@finding(
    "loss.large",
    "Heuristic: a first loss of 100 means errors of 10 in a squared one; 1e4 means 100",
)
def large(case: Case) -> Graded | None:
    """The first loss of a regression is orders above 1."""
    curve = case.view.curve
    if not curve or case.view.objective.is_classification or case.view.objective.is_summed:
        return None
    return graded(
        log_ramp(curve.first, 1e2, 1e4),
        f"the first loss is {curve.first:.3g}",
        onset=case.start if case.rows else None,
        first=curve.first,
    )


@finding(
    "loss.below_zero",
    "definition: errors and cross-entropies are never negative; Heuristic: 2 to 50 % of its size",
)
def below_zero(case: Case) -> Graded | None:
    """A loss that cannot be negative is."""
    curve = case.view.curve
    objective = case.view.objective
    if not curve or not objective.is_supervised or WEIGHED & set(objective.names):
        return None
    depth = -float(curve.finite.min()) / max(float(np.abs(curve.finite).max()), 1e-12)
    below = np.flatnonzero(curve.values < -0.02 * float(np.abs(curve.finite).max()))
    return graded(
        ramp(depth, 0.02, 0.5),
        f"it goes down to {float(curve.finite.min()):.3g}",
        onset=Onset.exact(int(curve.steps[below[0]])) if len(below) else None,
        lowest=float(curve.finite.min()),
    )


@finding(
    "loss.falls_without_floor",
    "Heuristic: learning slows down; half to all of the mean speed at the end does not",
)
def falls_without_floor(case: Case) -> Graded | None:
    """The loss goes below zero and falls at the end as fast as ever, or faster."""
    curve = case.view.curve
    if not curve or len(curve) < ENOUGH:
        return None
    if not curve.is_signed:
        return graded(0.0)
    count = len(curve)
    fall = curve.start - curve.end
    last = curve.level(2 * count // 3 - 5, 2 * count // 3 + 5) - curve.end
    speed = 3 * last / fall if fall > 0 else 0.0
    beyond = ramp(fall / max(curve.noise, 1e-12), 3, 10)
    return graded(
        both(ramp(speed, 0.5, 1.0), beyond),
        f"its last third fell at {speed:.2g} times its mean speed",
        late_speed_over_mean=speed,
        end=curve.end,
    )


@finding(
    "loss.constant",
    "Heuristic: batches differ, so equal losses mean that nothing enters or nothing changes",
)
def constant(case: Case) -> Graded | None:
    """The loss has exactly the same value on step after step."""
    curve = case.view.curve
    if not curve or len(curve.finite) < ENOUGH:
        return None
    same = np.diff(curve.values) == 0
    share = float(same.mean())
    first = int(np.flatnonzero(same)[0]) if same.any() else 0
    return graded(
        ramp(share, 0.5, 0.95),
        f"{share:.0%} of the losses equal the one before",
        onset=Onset.exact(int(curve.steps[first])),
        share=share,
    )


def _parts(case: Case) -> dict[str, tuple[float, float]]:
    """Return (start, end) of every named loss that is long enough, positive and finite."""
    return {
        name: (curve.start, curve.end)
        for name, curve in case.view.curves.items()
        if curve and len(curve.finite) >= ENOUGH and curve.start > 0 and not curve.is_signed
    }


@finding(
    "loss.part_rises",
    "Heuristic: 1.5 to 4 times its start, while another one falls by half",
)
def part_rises(case: Case) -> Graded | None:
    """Of several recorded losses one rises while another one falls."""
    parts = _parts(case)
    if len(parts) < 2:
        return None
    name = max(parts, key=lambda key: parts[key][1] / parts[key][0])
    fall = min(end / start for key, (start, end) in parts.items() if key != name)
    ratio = parts[name][1] / parts[name][0]
    return graded(
        both(log_ramp(ratio, 1.5, 4.0), ramp(fall, 1.0, 0.5)),
        f"{name!r} rose to {ratio:.3g} times its start while another fell to {fall:.2g}",
        which=name,
        ratio=ratio,
        other=fall,
    )


@finding(
    "loss.part_vanishes",
    "Heuristic: a term at 1e-2 to 1e-3 of its start has nothing left to say",
)
def part_vanishes(case: Case) -> Graded | None:
    """Of several recorded losses one goes to (nearly) nothing while the main one does not."""
    parts = _parts(case)
    main = case.view.curve
    if len(parts) < 2 or not main or main.start <= 0:
        return None
    name = min(parts, key=lambda key: parts[key][1] / parts[key][0])
    ratio = parts[name][1] / parts[name][0]
    return graded(
        both(log_ramp(ratio, 1e-2, 1e-3), ramp(main.end / main.start, 0.1, 0.3)),
        f"{name!r} fell to {ratio:.2g} of its start",
        which=name,
        ratio=ratio,
    )


SCORES = ("acc", "score", "f1", "auc", "recall", "precision", "iou", "map", "bleu")
"""Parts of the names of figures that are better the higher they are."""


def _turn(values: np.ndarray, *, is_score: bool) -> tuple[float, int]:
    """Return how far the end is from the best (ratio above 1: worse), and where the best was."""
    if is_score:
        best = int(np.argmax(values))
        return float(values[best] / max(float(np.median(values[-3:])), 1e-12)), best
    best = int(np.argmin(values))
    return float(np.median(values[-3:]) / max(float(values[best]), 1e-12)), best


@finding(
    "loss.evaluation_turns_bad",
    "Heuristic: 1.5 to 3 times its best; overfitting alone costs tens of percent",
)
def evaluation_turns_bad(case: Case) -> Graded | None:
    """A loss or score that was recorded now and then, beside the main loss, was far better once."""
    main, worst = case.trace.loss, (1.0, "", 0, 0)
    series = [(name, s, False) for name, s in case.trace.losses.items() if name != "loss"]
    for name, one in case.trace.metrics.items():
        is_score = any(word in name.lower() for word in SCORES)
        if is_score or "loss" in name.lower():
            series.append((name, one, is_score))
    series = [each for each in series if 5 <= len(each[1]) < max(len(main) // 2, 6)]
    if not series:
        return None
    for name, one, is_score in series:
        values = np.asarray(one.values, dtype=np.float64)
        if not np.isfinite(values).all() or values.min() <= 0:
            continue
        times, best = _turn(values, is_score=is_score)
        if times > worst[0]:
            after = int(one.steps[min(best + 1, len(one.steps) - 1)])
            worst = times, name, int(one.steps[best]) + 1, after
    times, name, first, last = worst
    return graded(
        log_ramp(times, 1.5, 3.0),
        f"{name!r} is {times:.3g} times worse than at its best",
        onset=Onset.within(min(first, last), last),
        which=name,
        ratio=times,
    )
