# SPDX-License-Identifier: MIT
"""Missing optimizer step: backward runs, nothing ever steps, weights stay bit-identical."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.loop import FEW, loop_fault, working
from neuraldbg.schema.facts import ParameterStat

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Report a loop with backward passes, no optimizer step and weights that do not move."""
    if not len(view.steps) or working(view).sum() < FEW or view.curve.learned:
        return None
    if np.nansum(view.ledger("steps")) > 0 or np.nansum(view.ledger("skipped")) > 0:
        return None
    weights = view.parameter(ParameterStat.WEIGHT_RMS)
    known = weights[:, ~np.isnan(weights).all(axis=0)]
    if known.size and bool((np.nanmax(known, axis=0) != np.nanmin(known, axis=0)).any()):
        return None
    return loop_fault(
        view,
        "missing_optimizer_step",
        0,
        f"{int(working(view).sum())} backward passes ran and no optimizer ever stepped",
        0.9,
    )
