# SPDX-License-Identifier: LicenseRef-Proprietary
"""How far a step moves the weights: update RMS over weight RMS, per matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg_engine.findings.finding import Graded, finding, graded, log_ramp

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case

USUAL = 1e-3
"""Update/weight ratio of training that goes well (Karpathy, CS231n notes, "ratio of weights")."""


@finding(
    "updates.high",
    "1e-3 is usual (CS231n notes); Heuristic: 3e-2 to 0.3, the first steps of Adam left out",
)
def high(case: Case) -> Graded | None:
    """One step moves the median matrix far more than usual."""
    size = case.view.step_size
    known = size[np.isfinite(size)]
    if len(known) < 3:
        return None
    ratio = float(np.median(known[2:] if len(known) > 5 else known))
    return graded(
        log_ramp(ratio, 3e-2, 0.3),
        f"a step moves the median matrix by {ratio:.2g} of its size",
        update_weight_ratio=ratio,
    )


@finding(
    "updates.low",
    "1e-3 is usual (CS231n notes); Heuristic: 1e-4 to 1e-5",
)
def low(case: Case) -> Graded | None:
    """One step hardly moves the median matrix."""
    size = case.view.step_size
    known = size[np.isfinite(size)]
    if len(known) < 3:
        return None
    ratio = float(np.median(known))
    return graded(
        log_ramp(ratio, 1e-4, 1e-5),
        f"a step moves the median matrix by {ratio:.2g} of its size",
        update_weight_ratio=ratio,
    )
