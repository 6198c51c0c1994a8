# SPDX-License-Identifier: LicenseRef-Proprietary
"""Gradients over depth and over time, before clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.symptoms import gradient_depth
from neuraldbg_engine.findings.finding import Graded, both, finding, graded, log_ramp, ramp
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case


@finding(
    "gradients.vanish_with_depth",
    "Heuristic: first layer / head 1e-2 to 1e-4, and a slope of 0.3 to 1 per layer in logs",
)
def vanish_with_depth(case: Case) -> Graded | None:
    """Early in the run the gradient falls by orders of magnitude from the head to the input."""
    depth = gradient_depth(case.view)
    if depth is None:
        return None
    grade = both(log_ramp(depth.ratio, 1e-2, 1e-4), ramp(depth.slope, 0.3, 1.0))
    return graded(
        grade,
        f"the first layer gets {depth.ratio:.2g} of the head's gradient",
        depth.layers[0],
        first_over_head=depth.ratio,
        log_slope_per_layer=depth.slope,
    )


@finding(
    "gradients.nonfinite",
    "definition; Heuristic: one step counts half",
)
def nonfinite(case: Case) -> Graded | None:
    """Gradients were NaN or Inf on steps that were not skipped."""
    total = case.view.gradient_total
    if not len(total) or np.isnan(total).all():
        return None
    bad = np.isinf(total) & ~(case.view.ledger("skipped") > 0)
    if not bad.any():
        return graded(0.0)
    count = int(bad.sum())
    step = case.view.label(int(np.flatnonzero(bad)[0]))
    return graded(
        0.5 if count == 1 else 1.0,
        f"gradients are not finite at step {step}",
        onset=Onset.exact(step),
        steps=count,
    )
