# SPDX-License-Identifier: LicenseRef-Proprietary
"""The main loss over the run: did it learn, break, diverge, stand still?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.curve import LEARNED, STUCK
from neuraldbg.reasoning.symptoms import departure_row
from neuraldbg_engine.findings.finding import Graded, both, finding, graded, log_ramp, ramp
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case


@finding(
    "loss.not_finite",
    "definition: NaN and Inf are no losses; a skipped batch counts for a third",
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
    if not curve or curve.is_signed:
        return None
    if curve.is_broken:
        return None
    ratio = curve.end / max(abs(curve.start), 1e-12)
    grade = log_ramp(ratio, 1.2, 3.0) if curve.is_diverged else 0.0
    row = departure_row(case.view) if grade else None
    return graded(
        grade,
        f"the loss ended at {ratio:.3g} times its start",
        onset=None if row is None else Onset.exact(case.view.label(row)),
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
    """The loss never got clearly below its start."""
    curve = case.view.curve
    if not curve or len(curve) < 10:
        return None
    grade = both(ramp(curve.best_progress, 2 * STUCK, STUCK), 0.0 if curve.is_broken else 1.0)
    return graded(
        grade,
        f"the best level is {curve.best_progress:.2f} of the way down",
        best_progress=curve.best_progress,
    )
