# SPDX-License-Identifier: MIT
"""Wrong loss sign: the loss falls below any floor and faster and faster, as weights run away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import difference_noise
from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.causes.lr_too_high import is_policy
from neuraldbg.reasoning.symptoms import output_rms
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

GREW = 0.05
"""Rise over its start of a value that the run maximises, beyond noise. Heuristic: a twentieth."""
BOUNDLESS = 1e4
"""Depth below zero over the (positive) start, or over 1 where that is less, however it got there.
Heuristic: log-densities and entropies are sums of logarithms, so a term that is meant gains tens
per element, never four orders on all of them; a run that overflowed stands still down there."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a loss that runs to minus infinity while outputs grow."""
    curve = view.curve
    punished = _punished(view)
    if punished is not None:
        return punished
    if _climbs(view):
        return _told(
            view,
            0.85 if view.objective.is_supervised else 0.6,
            f"the optimizer maximises (maximize=True) a loss that went from "
            f"{figure(curve.start)} to {figure(curve.end)}",
        )
    if not curve or not curve.is_signed or len(view.run.models) > 1 or len(curve) < 20:
        return None
    middle = curve.level(len(curve) // 2 - 5, len(curve) // 2 + 5)
    fell_first, fell_last = curve.start - middle, middle - curve.end
    outputs = output_rms(view)
    with np.errstate(invalid="ignore", divide="ignore"):
        grown = float(view.late(outputs) / view.early(outputs))
    floored = view.objective.is_supervised
    is_raw = "scores_into_probability_loss" in view.observations
    if (
        floored
        and not is_raw
        and curve.start > 0
        and curve.end < -BOUNDLESS * max(curve.start, 1.0)
    ):
        return _told(
            view,
            0.85,
            f"the loss fell from {figure(curve.start)} to {figure(curve.end)}, orders of magnitude "
            "below zero, and holds a term that cannot be negative: another one falls without bound",
            _turned_at(view),
        )
    runaway = (
        fell_last > 1.2 * max(fell_first, 0)
        and fell_last > 0
        and curve.end < -20 * max(abs(curve.start), 0.1)
    )
    if not runaway or not (grown > 5 or floored):
        return None
    return _told(
        view,
        0.6 + 0.25 * floored,
        f"the loss fell from {figure(curve.start)} to {figure(curve.end)}, faster and faster, "
        f"while outputs grew by {figure(grown)}",
        _turned_at(view),
    )


def _climbs(view: CaseView) -> bool:
    """Whether an optimizer is told to maximise what is a loss, and the loss did not come down.

    Maximising a reward or a likelihood is meant: there the value is a policy's, or goes below 0.
    What never falls below 0, is called a loss by the user and grows is an error that is maximised.
    """
    curve = view.curve
    if not any(bool(o.options.get("maximize")) for o in view.run.optimizers) or not curve:
        return False
    if view.objective.is_supervised:
        return view.is_failing
    if is_policy(view) or len(view.run.models) > 1 or "backward" in view.trace.losses:
        return False
    first = curve.level(0, max(len(curve) // 10, 3))
    last = curve.level(2 * len(curve) // 3, len(curve))
    noise = 3 * curve.noise / np.sqrt(max(len(curve) // 10, 3))
    return bool(float(np.min(curve.finite)) >= 0 and last - first > max(GREW * first, noise))


PRAISE = ("reward", "return", "score", "success", "win", "_rew")
"""Parts of the names of metrics that a policy is to raise."""
LOST = 0.2
"""Share of its first level by which such a metric must fall. Heuristic: a policy that does not
learn stays where it began; one that is pushed away from what is rewarded ends below chance."""


def _punished(view: CaseView) -> Assessment | None:
    """Look for log-probabilities that are minimised times their reward, and a reward that falls.

    The sign alone may be meant: what multiplies it may be a cost.
    """
    notes = view.observations.get("loss_function", ())
    factors = [n.figures.get("factor", 0.0) for n in notes if n.words.get("name") == LOG]
    factors += [n.figures["log_density"] for n in notes if "log_density" in n.figures]
    if not factors or min(factors) <= 0:
        return None
    for name, series in view.trace.metrics.items():
        values = series.values[np.isfinite(series.values)]
        if len(values) < ENOUGH or not any(word in name.lower() for word in PRAISE):
            continue
        part = len(values) // 5
        first, last = float(np.median(values[:part])), float(np.median(values[-part:]))
        noise = difference_noise(values) / np.sqrt(part)
        if first - last > max(LOST * abs(first), 6 * noise):
            return _told(
                view,
                0.8,
                f"the log-probability of the actions enters the loss with a positive sign, so "
                f"minimising it makes rewarded actions rarer, and {name!r} fell from "
                f"{figure(first)} to {figure(last)}",
            )
    return None


LOG = "log_probability"
ENOUGH = 30


SETTLED = 40
"""Steps before a loss went below zero that show whether it was on its way there."""
LEVEL = 0.25
"""Share of its level by which a loss that has settled may fall within them, beyond noise.
Heuristic: one that heads for zero falls by more than what is left."""


def _turned_at(view: CaseView) -> int:
    """Return the step on which a loss that had settled went below zero for good, else the first.

    A term that is switched on in mid-run takes the loss there at once. A wrong sign that acts from
    the start makes it fall all along.
    """
    curve = view.curve
    finite = np.where(np.isfinite(curve.values), curve.values, -np.inf)
    above = np.flatnonzero(finite >= 0)
    crossed = int(above[-1]) + 1 if len(above) else 0
    if not SETTLED < crossed < len(finite):
        return view.label(0)
    before = finite[crossed - SETTLED : crossed]
    first, last = float(np.median(before[: SETTLED // 2])), float(np.median(before[SETTLED // 2 :]))
    noise = difference_noise(before) / np.sqrt(SETTLED // 2)
    is_settled = first - last < max(LEVEL * last, 3 * noise)
    drop = float(np.median(before[-3:])) - float(finite[crossed])
    usual = difference_noise(before) + max(first - last, 0.0) / (SETTLED // 2)
    is_above = float(np.mean(before > 0)) > MOSTLY and last > 0
    is_turn = is_above and (is_settled or drop > DROP * usual)
    return int(curve.steps[crossed]) if is_turn else view.label(0)


MOSTLY = 0.9
"""Share of positive values of a loss that was above zero before."""
DROP = 10.0
"""Last step down over what steps were before, noise included. Heuristic: a loss that falls faster
and faster doubles its pace within tens of steps, not its order within one."""


def _told(view: CaseView, confidence: float, what: str, step: int | None = None) -> Assessment:
    step = view.label(0) if step is None else step
    return Assessment(
        cause="wrong_loss_sign",
        failure=FailureType.OBJECTIVE_MISMATCH,
        confidence=confidence,
        description=(
            f"Wrong loss sign from step {step}: {what}: the run climbs where it should descend."
        ),
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["optimizer_instability", "gradient_health_transition"]),
        chain=(
            link(None, step, "minimising the negative of a loss raises the loss without bound"),
        ),
        explains=frozenset({"unknown", "lr_too_high"}),
    )
