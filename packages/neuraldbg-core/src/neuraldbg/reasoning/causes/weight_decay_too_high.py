# SPDX-License-Identifier: MIT
"""Weight decay too high: decay outweighs the data's gradient and the weights shrink away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.symptoms import weight_growth
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import OptimizerStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

SHRUNK = 0.4
"""Last / initial weight RMS, median over matrices."""
PULL = 1.0
"""Sum over the run of lr * decay: from 1 on, decay alone shrinks weights to 1/e."""
HELD = 5.0
"""Sum of lr * decay from which decoupled decay has long been in balance with the updates. Those of
Adam and its like are about 1 each, so no weight stays above 1 / decay (Xie and Li 2024, "Implicit
bias of AdamW"); where that lies below what the weights began with, the data cannot hold them."""
USUAL = 1e-3
"""Decay in everyday use. Heuristic: papers take 1e-5 to 1e-3 as L2. Where the gradient is gone for
another reason, Adam makes even that its whole update: shrinking is then a consequence."""


def assess(view: CaseView) -> Assessment | None:
    """Compare how much weights shrank with what decay alone would do."""
    decay = view.optimizer(OptimizerStat.WEIGHT_DECAY)
    if not decay.size or not np.nanmax(decay, initial=0.0) > 0 or view.curve.learned:
        return None
    gradient = float(view.early(view.gradient_total, 10))
    if not gradient > view.gone:
        return None
    widths = np.asarray(view.trace.facts.widths, dtype=np.float64)
    strength = _in_force(view, decay)
    pull = float(np.nansum(view.lr * strength * widths))
    if "sgd" in view.optimizer_kinds:
        momentum = float(np.nanmax(view.optimizer(OptimizerStat.MOMENTUM), initial=0.0))
        pull /= max(1 - momentum, 0.01)
    shrunk = weight_growth(view)
    coupled = view.is_adaptive and not any("adamw" in k for k in view.optimizer_kinds)
    strength_now = float(np.nanmax(decay))
    is_held = not coupled and view.is_adaptive and pull > HELD and _initial(view) * strength_now > 1
    if not is_held and (shrunk > SHRUNK or (pull < PULL and not coupled)):
        return None
    confidence = 0.7 + 0.2 * (shrunk < 0.15)
    if pull < PULL and strength_now <= USUAL:
        confidence = 0.35
    step = view.label(_since(strength))
    what = f"shrank the weights to {100 * shrunk:.2g} % of their initial size"
    if is_held and shrunk > SHRUNK:
        most = figure(1 / strength_now)
        what = f"holds the weights below about {most}, less than they began with"
    return Assessment(
        cause="weight_decay_too_high",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=confidence,
        description=(
            f"Weight decay too high from step {step}: decay {figure(strength_now)} {what} while "
            f"the loss stayed at {figure(view.curve.end)}."
        ),
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["optimizer_instability", "representation_collapse"]),
        chain=(
            link(None, step, f"decay {figure(strength_now)} outweighs the gradient of the data"),
            link(None, step, "weights shrink geometrically and outputs become one constant"),
        ),
        explains=frozenset(
            {
                "labels_unrelated_to_inputs",
                "embedding_collapse",
                "dying_relu",
                "unknown",
                "lr_too_high",
                "posterior_collapse",
                "init_too_small",
                "lr_too_low",
                "oversmoothing",
                "recurrent_vanishing",
                "saturating_activations",
                "deep_without_residual",
            }
        ),
    )


def _initial(view: CaseView) -> float:
    """Return the RMS that the weights began with, median over matrices; NaN where none is known."""
    initial = [view.run.parameters[row].initial_rms for row in view.matrix_rows]
    return float(quiet(np.nanmedian, np.array(initial, dtype=np.float64)))


def _in_force(view: CaseView, decay: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest decay of the optimizers that stepped, `[T]`; NaN where none was read.

    One that was replaced in mid-run still has its options; they do nothing any more.
    """
    stepped = view.optimizer(OptimizerStat.STEPPED) > 0
    own = np.where(stepped, decay, np.nan)
    return quiet(np.nanmax, np.where(stepped.any(axis=1, keepdims=True), own, decay), axis=1)


RAISED = 2.0
"""Decay over all before from which it was raised. Heuristic: schedules of decay that follow the lr
rise by percents from step to step."""


def _since(strength: NDArray[np.float64]) -> int:
    """Return the row from which on the decay is in force that ended the run: 0 where all along."""
    known = np.flatnonzero(np.isfinite(strength))
    lower = known[strength[known] * RAISED < float(np.nanmax(strength))]
    if not len(lower) or lower[-1] == known[-1]:
        return 0
    return int(known[known > lower[-1]][0])
