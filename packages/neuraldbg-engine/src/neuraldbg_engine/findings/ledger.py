# SPDX-License-Identifier: LicenseRef-Proprietary
"""What the training loop did, by its ledger: facts, exact to the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg_engine.findings.finding import Graded, finding, graded, ramp
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case


def _share(case: Case, flags: np.ndarray, says: str) -> Graded | None:
    """Grade by the share of steps with a backward on which the flag is up."""
    view = case.view
    worked = view.ledger("backwards") > 0
    if worked.sum() < 3:
        return None
    rows = np.flatnonzero(flags & worked)
    share = len(rows) / int(worked.sum())
    return graded(
        ramp(share, 0.05, 0.5),
        f"{says} on {share:.0%} of the steps",
        onset=Onset.exact(view.label(int(rows[0]))) if len(rows) else None,
        share=share,
    )


@finding(
    "ledger.not_cleared",
    "ledger of calls; Heuristic: 5 % to half of the steps, so that one odd step is none",
)
def not_cleared(case: Case) -> Graded | None:
    """A step's first backward found gradients of the step before."""
    flags = case.view.ledger("is_cleared") < 0.5
    flags[:1] = False
    return _share(case, flags, "gradients were not cleared")


@finding(
    "ledger.cleared_before_step",
    "ledger of calls; Heuristic: 5 % to half of the steps",
)
def cleared_before_step(case: Case) -> Graded | None:
    """Gradients that a backward had produced were gone when the optimizer stepped."""
    flags = case.view.ledger("is_cleared_before_step") > 0
    return _share(case, flags, "gradients were cleared before the step")
