# SPDX-License-Identifier: MIT
"""Input distribution shift: from one step on, and lasting, batches leave the band of all before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, argument, figure, link
from neuraldbg.reasoning.causes.catastrophic_forgetting import NEAR, evaluations, turn_of
from neuraldbg.reasoning.inputs import departures, first_sign, is_one_batch
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.inputs import Departure
    from neuraldbg.reasoning.view import CaseView

HARM = 1.25
"""Loss after over loss before."""
BEYOND = 1.5
"""Times the origin: answers worse than a constant's take inputs that were never seen."""
UNLEARNED = 0.5
"""Share of the origin to which a loss must be thrown back for the run to have lost what it knew."""
SLOW_HARM = 1.5
"""Loss at the end over the level before a drift: less is a model that follows, or a curriculum."""
CLEAR_HARM = 3.0
"""The same for its highest smoothed level, where the loss never came back to what it was."""
GOES_ON = 1.5
"""Distance from the band at the end over the distance soon after it was left: a drift goes on."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a lasting departure of the input that the loss followed."""
    if len(view.run.models) > 1:
        return None
    for departure in departures(view):
        if not departure.is_lasting or departure.row < 5:
            continue
        step = view.label(first_sign(view, departure))
        harm = loss_harm(view, step)
        creeps = _creeps(view, departure)
        if creeps:
            harm = max(harm, _slow_harm(view, step))
        missed = None
        is_harmless = harm < HARM or (is_recovered(view, step) and not creeps)
        is_rehearsal = view.curve.learned and is_one_batch(view, departure)
        if not view.is_broken and (is_harmless or is_rehearsal):
            missed = _missed(view, _before(view, departure))
            if missed is None:
                continue
        name = argument(view.run.inputs[departure.column].name)
        stat = departure.stat.name.lower()
        kind = "drifted" if departure.is_drift or creeps else "shifted"
        return Assessment(
            cause="input_distribution_shift",
            failure=FailureType.DATA_ANOMALY,
            confidence=min(
                0.9, 0.65 + 0.1 * np.log10(max(abs(departure.z) / 8, 1)) + 0.1 * (harm > 2)
            ),
            description=(
                f"Input distribution {kind} at step {step}: {stat} of {name} went from "
                f"{figure(departure.before)} to {figure(departure.after)} for good, and "
                f"{missed or f'the loss rose to {figure(harm)} times its level'}."
            ),
            onset=step,
            onset_range=(max(step - 1, 0), step),
            evidence=view.events(types=["data_anomaly"]),
            chain=(
                link(None, step, f"{stat} of the input leaves the band of all earlier batches"),
                link(None, step, "the model sees what it was not trained on")
                if missed is None
                else link(None, step, "the model follows, and no longer fits what it was"),
            ),
            explains=frozenset(
                {
                    "lr_too_high",
                    "missing_gradient_clipping",
                    "unknown",
                    "dying_relu",
                    "stale_second_moment",
                    "outlier_batch",
                    "target_outlier",
                }
            ),
        )
    return None


def _before(view: CaseView, departure: Departure) -> int:
    """Return the last step before a departure on which the input was measured."""
    values = view.inputs(departure.stat)[: departure.row, departure.column]
    known = np.flatnonzero(np.isfinite(values))
    return view.label(int(known[-1])) if len(known) else view.label(0)


def _missed(view: CaseView, step: int) -> str | None:
    """Return what an evaluation shows that was recorded: good until `step` or later, bad since.

    A loss that follows the input says nothing: a curriculum's does, too.
    """
    width = max(NEAR * (view.steps[-1] - view.steps[0]), 5)
    for name, series, is_score in evaluations(view):
        values = np.asarray(series.values, dtype=float)
        turn = turn_of(values, is_score=is_score) if len(values) >= 5 else None
        if turn is not None and series.steps[turn] >= step - width:
            return (
                f"{name!r} went from {figure(float(values[turn]))} to {figure(float(values[-1]))}"
            )
    return None


def is_recovered(view: CaseView, step: int) -> bool:
    """Whether the run ended about as low as it was before: a curriculum moves on, and so does it.

    What threw a loss that had fallen back to where the run had started was no curriculum.
    """
    curve = view.curve
    index = int(np.searchsorted(curve.steps, step))
    before, at_once = curve.level(index - 15, index), curve.level(index, index + 3)
    if at_once > UNLEARNED * curve.origin > before / UNLEARNED:
        return False
    if at_once > BEYOND * curve.origin > BEYOND * before:
        return False
    return bool(curve.end < HARM * abs(before) + curve.noise)


def loss_harm(view: CaseView, step: int) -> float:
    """Return the loss level after a step over the level before it; above 1 only beyond noise."""
    curve = view.curve
    index = int(np.searchsorted(curve.steps, step))
    before, after = curve.level(index - 15, index), curve.level(index, index + 15)
    if not np.isfinite(before) or not np.isfinite(after):
        return 1.0
    if after - before < 2 * curve.noise:
        return 1.0
    return float(after / abs(before)) if before else float("inf")


def _creeps(view: CaseView, departure: Departure) -> bool:
    """Whether the input went on moving away to the end of a run that lost ground meanwhile.

    A curriculum or an agent that gets better moves its inputs too, and learns.
    """
    values = view.inputs(departure.stat)[:, departure.column]
    row, rows = departure.row, len(values)
    if rows - row < 40:
        return False
    soon = float(np.nanmedian(values[row + 10 : row + 30])) - departure.before
    late = float(np.nanmedian(values[-max(10, (rows - row) // 10) :])) - departure.before
    if not (late * soon > 0 and abs(late) > GOES_ON * abs(soon)):
        return False
    index = int(np.searchsorted(view.curve.steps, view.label(row)))
    ended = view.curve.end / max(view.curve.level(index - 15, index), 1e-12)
    return bool(ended > SLOW_HARM or (ended > 1 and _slow_harm(view, view.label(row)) > CLEAR_HARM))


def _slow_harm(view: CaseView, step: int) -> float:
    """Return the highest smoothed loss after a step over the level before; 1 within noise."""
    curve = view.curve
    index = int(np.searchsorted(curve.steps, step))
    before = curve.level(index - 15, index)
    after = curve.smooth[index:]
    if not np.isfinite(before) or before <= 0 or not np.isfinite(after).any():
        return 1.0
    top = float(np.nanmax(after))
    if top - before < 5 * curve.noise / np.sqrt(curve.width):
        return 1.0
    return top / before
