# SPDX-License-Identifier: MIT
"""Stale second moment: Adam's v lags behind a gradient that grew, and one step is far too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import lasting_jump, setback
from neuraldbg.schema.facts import OptimizerStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

RATIO = 8.0
"""Gradient RMS over the root of its second moment. 2.3 (element by element) precedes spikes by 1 to
8 steps (Wortsman et al. 2023). Whole tensors of small batches reach 3 in health, and 7 where an
agent's targets are renewed."""
COST = 0.08
"""Lasting rise as a share of the origin."""
LASTING = 10.0
"""Level after a jump over the level before from which a smaller cost counts."""
COSTLY = 0.5
"""The same where the loss jumps now and then anyway, or comes back at once."""
ROUTINE = 3
"""Separate jumps from which on they belong to the method (targets renewed now and then)."""
LOOK_BACK = 8
WORSE = 1.3
"""Highest loss of the next steps over that of the step whose update is judged. Heuristic: beyond a
batch's noise; a new kind of batch is worst when it is first seen."""
FAR_WORSE = 3.0
"""The same where the loss stays as high: a spike goes, the level of a new task does not."""
RECOVERED = 40
"""Steps after those whose level says whether it stays."""
SLOW_BETA2 = 0.99
"""Below this the second moment forgets fast enough."""


def assess(view: CaseView) -> Assessment | None:
    """Look just before a lasting spike for a tensor whose second moment was out of date.

    Where the gradient grows on the very step on which the loss jumps, no update stands between: the
    batch is another one, and the jump is its own, unless the next losses are higher still.
    """
    beta2 = view.optimizer(OptimizerStat.BETA2)
    slow = float(np.nanmax(beta2, initial=0.0))
    if not view.is_adaptive or slow < SLOW_BETA2 or not len(view.run.parameters):
        return None
    curve = view.curve
    ratio = staleness(view, slow)
    is_routine = len(clusters([index for index, _, _ in curve.jumps])) >= ROUTINE
    for index, z, jump in curve.jumps:
        lasts = not is_routine and lasting_jump(view, index) > LASTING
        if index < 20 or jump < 1.5 or setback(view, index) < (COST if lasts else COSTLY):
            continue
        if curve.is_signed and curve.end < curve.level(index - LOOK_BACK, index):
            continue  # no origin says what such a jump cost, and it was made good
        row = view.row_at(int(curve.steps[index]))
        window = ratio[max(0, row - LOOK_BACK) : row + 1]
        if not np.isfinite(window).any():
            continue
        peak = np.unravel_index(int(np.nanargmax(window)), window.shape)
        value = float(window[peak])
        at = max(0, row - LOOK_BACK) + int(peak[0])
        if value < RATIO or not _made_it_worse(view, at):
            continue
        step = view.label(at)
        parameter = view.run.parameters[int(peak[1])]
        return Assessment(
            cause="stale_second_moment",
            failure=FailureType.OPTIMIZER_INSTABILITY,
            confidence=0.55 + 0.1 * (z > 20) + 0.15 * (value > 2 * RATIO),
            description=(
                f"Stale second moment at step {step}: in {named(parameter.layer)} the gradient was "
                f"{figure(value)} times what Adam's second moment (beta2 {slow:g}) "
                f"knew, and the loss spiked at step {int(curve.steps[index])}."
            ),
            layer=parameter.layer,
            onset=step,
            onset_range=(step, int(curve.steps[index])),
            evidence=view.events(types=["optimizer_instability"], state="loss_spike"),
            chain=(
                link(parameter.layer, step, "the gradient outgrows the second moment's memory"),
                link(
                    None, int(curve.steps[index]), "one step is far too long, and the loss spikes"
                ),
            ),
            explains=frozenset({"missing_gradient_clipping", "unknown"}),
        )
    return None


def _made_it_worse(view: CaseView, row: int) -> bool:
    """Whether a loss soon after the update of this row is clearly above the loss before it.

    Of an older part of a run a row stands for many steps. The gradient that is largest among them
    goes with the largest loss: other data raise both at once, and no update stands between.
    """
    curve, facts = view.curve, view.trace.facts
    at = int(np.searchsorted(curve.steps, view.label(row)))
    until = int(np.searchsorted(curve.steps, facts.stops[row], side="right"))
    span = curve.values[at:until]
    if len(span) > 1 and np.isfinite(span).any():
        at += int(np.nanargmax(span))
    after = curve.values[at + 1 : at + 1 + LOOK_BACK]
    if not len(after) or at >= len(curve):
        return False
    if not np.isfinite(after).all():
        return True
    before, worst = float(curve.values[at]), float(np.max(after))
    if worst > FAR_WORSE * before:
        return True
    # A new task is as hard on the next batches as on its first: some of them are worse by chance.
    later = curve.level(at + LOOK_BACK, at + LOOK_BACK + RECOVERED)
    return worst > WORSE * max(before, 0.0 if np.isnan(later) else later)


def staleness(view: CaseView, beta2: float) -> NDArray[np.float64]:
    """Return gradient RMS / sqrt(its own bias-corrected second moment), `[T, P]`.

    From gradient norms, which are exact where they are known, while the optimizer's state is only
    sampled. On rows on which nothing was measured the last known gradient stands for them.
    """
    squares = np.nan_to_num(view.gradient_rms, nan=0.0, posinf=0.0) ** 2
    is_known = np.asarray(np.isfinite(view.gradient_rms).any(axis=1), dtype=np.bool_)
    moment, latest = np.zeros(squares.shape[1]), np.zeros(squares.shape[1])
    ratio = np.full(squares.shape, np.nan)
    for row, square in enumerate(squares):
        latest = square if is_known[row] else latest
        moment = beta2 * moment + (1 - beta2) * latest
        if is_known[row]:
            seen = moment / (1 - beta2 ** (row + 1))
            ratio[row] = np.sqrt(square / np.maximum(seen, 1e-30))
    return ratio


def clusters(indices: list[int], gap: int = 10) -> list[int]:
    """Return the first index of each group of jumps that lie less than `gap` steps apart."""
    return [i for n, i in enumerate(indices) if n == 0 or i - indices[n - 1] >= gap]
