# SPDX-License-Identifier: MIT
"""Target outlier: the targets of one batch lie far outside the rest; inputs and outputs do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import median_mad
from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.symptoms import SETBACK, lasting_jump, output_rms, setback
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import InputStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

JUMP = 10.0
"""Loss over the median of the steps before."""
WARM_UP = 8
"""Losses before there is a level to jump from."""

BEYOND = 10.0
"""Loss over the squared size of the outputs: what the outputs themselves cannot account for."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a jump of the loss on a step whose outputs were like those before."""
    curve = view.curve
    if not curve or curve.is_signed or not len(view.steps):
        return None
    outputs = output_rms(view)
    for index, z, ratio in _lone_jumps(view):
        value = float(curve.values[index])
        before = curve.values[max(0, index - 3) : index]
        sudden = value > JUMP * float(np.nanmax(np.abs(before), initial=0.0))
        if index < WARM_UP or ratio < JUMP or not sudden or z < 20:
            continue
        if _contradicts(view, index, ratio):
            return _contradiction(view, index, ratio)
        if value < 3 * abs(curve.start):
            continue
        row = view.row_at(int(curve.steps[index]))
        past = _past(outputs, row)
        middle, scale = (float(x) for x in median_mad(past)) if len(past) >= 3 else (np.nan, 0.0)
        size = outputs[row]
        if np.isnan(size) and _is_usual(view, index):
            size = middle  # a thinned step: as inputs and weights were, so were outputs
        if not np.isfinite(middle) or not np.isfinite(size):
            continue
        if size > 2 * middle + 6 * scale or value < BEYOND * max(size, 1.0) ** 2:
            return None
        stays = lasting_jump(view, index)
        hurts = stays > 1.3 and setback(view, index) > SETBACK
        if not (hurts or view.is_broken or not curve.learned):
            continue
        step = int(curve.steps[index])
        return Assessment(
            cause="target_outlier",
            failure=FailureType.DATA_ANOMALY,
            confidence=0.85,
            description=(
                f"Target outlier at step {step}: the loss jumps to {figure(value)} "
                f"({figure(ratio)} times its level) while inputs and outputs are as before, so "
                "the targets of this batch lie far outside the rest."
            ),
            onset=step,
            onset_range=(step, step),
            evidence=view.events(
                types=["optimizer_instability", "gradient_health_transition"], until=step + 1
            ),
            chain=(
                link(None, step, "one batch has targets orders outside the rest"),
                link(None, step, "its loss and gradient move the weights by more than all before"),
            ),
            explains=frozenset(
                {
                    "lr_too_high",
                    "missing_gradient_clipping",
                    "unknown",
                    "stale_second_moment",
                    "dying_relu",
                }
            ),
        )
    return None


CONTRADICTION = 100.0
"""Loss of one batch over the level of a run that had learned."""
ABOVE_START = 1.3
"""And over its origin: to do worse than to know nothing takes targets that say otherwise."""
CALM = 20
"""Steps before it of which none came near."""


def _contradicts(view: CaseView, index: int, ratio: float) -> bool:
    """Whether one batch of ordinary inputs and outputs is answered worse than by ignorance."""
    curve = view.curve
    if index < CALM or ratio < CONTRADICTION or not _is_usual(view, index):
        return False
    value = float(curve.values[index])
    before = curve.values[index - CALM : index]
    origin = max(abs(curve.start), abs(curve.origin))
    if value < ABOVE_START * origin or not float(np.nanmax(before)) < value / 20:
        return False
    after = curve.values[index + 1 : index + 6]
    if not len(after) or float(np.nanmedian(after)) > value / 20:
        return False  # a new term or task stays, one batch passes
    batch = view.ledger("batch_size")
    return not float(np.nanmedian(batch)) <= FEW_ROWS


FEW_ROWS = 2
"""Batches so small that a single hard sample makes their loss."""


HEAVY, SPIKES, APART = 5.0, 8, 10
"""Loss over its level, how many other jumps of that size, and how many steps away, from which jumps
are how the data are: noise with heavy tails has outliers of every size, a broken batch is one."""


def _lone_jumps(view: CaseView) -> list[tuple[int, float, float]]:
    """Return the jumps of the loss, but for those of one that jumps by a lot all along."""
    jumps = view.curve.jumps

    def is_usual(index: int) -> bool:
        others = [i for i, _, ratio in jumps if ratio >= HEAVY and abs(i - index) > APART]
        return len(others) >= SPIKES and min(others) < index < max(others)

    return [jump for jump in jumps if not is_usual(jump[0])]


def _past(values: NDArray[np.float64], row: int) -> NDArray[np.float64]:
    """Return the last 30 finite values before a row."""
    return values[:row][np.isfinite(values[:row])][-30:]


def _is_usual(view: CaseView, index: int) -> bool:
    """Whether inputs, outputs and the update before were of the size of those of earlier steps.

    What was not measured on that step tells nothing; something must have been.
    """
    row, compared = view.row_at(int(view.curve.steps[index])), 0
    moves = view.step_size[max(0, row - 30) : row]
    if len(moves) and moves[-1] > 5 * float(quiet(np.nanmedian, moves)):
        return False
    sizes = [output_rms(view), *view.inputs(InputStat.RMS).T]
    for size in sizes:
        past = _past(size, row)
        if len(past) < 3 or not np.isfinite(size[row]):
            continue
        middle, scale = (float(x) for x in median_mad(past))
        if abs(size[row] - middle) > 6 * max(scale, 0.05 * abs(middle)):
            return False
        compared += 1
    return compared > 0


def _contradiction(view: CaseView, index: int, ratio: float) -> Assessment:
    step, value = int(view.curve.steps[index]), float(view.curve.values[index])
    return Assessment(
        cause="target_outlier",
        failure=FailureType.DATA_ANOMALY,
        confidence=0.75,
        description=(
            f"Target outlier at step {step}: the loss of this one batch is {figure(value)} "
            f"({figure(ratio)} times its level, above its start of {figure(view.curve.start)}) "
            "while inputs and outputs are as before, so its targets contradict what was learned."
        ),
        onset=step,
        onset_range=(step, step),
        evidence=tuple(
            event
            for event in view.events(
                types=["optimizer_instability"], state="loss_spike", until=step + 1, most=8
            )
            if event.step >= step - 1
        ),
        chain=(
            link(None, step, "the targets of one batch say other than those of all before"),
            link(None, step, "its loss and gradient move the weights by more than all before"),
        ),
        explains=frozenset({"lr_too_high", "missing_gradient_clipping", "unknown", "dying_relu"}),
    )
