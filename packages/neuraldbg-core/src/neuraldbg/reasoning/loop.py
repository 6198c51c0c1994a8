# SPDX-License-Identifier: MIT
"""The order of calls in the training loop, read from the ledger of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, link
from neuraldbg.reasoning.causes.observed import SYMPTOMATIC
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

MOSTLY = 0.8
"""Share of steps on which a call is out of place before it counts as how the loop is written."""
FEW = 5
"""Steps below which a loop has not shown how it is written."""


def rows_with(view: CaseView, name: str) -> NDArray[np.bool_]:
    """Return `[T]`: rows of finished steps on which a count or flag of the ledger is above 0."""
    return view.ledger(name) > 0


def working(view: CaseView) -> NDArray[np.bool_]:
    """Return `[T]`: rows on which a backward ran."""
    return view.ledger("backwards") > 0


def lasting_from(flags: NDArray[np.bool_], share: float = MOSTLY) -> int | None:
    """Return the first flagged row from which on at least `share` of the rows are flagged."""
    rows = np.flatnonzero(flags)
    if not len(rows):
        return None
    suffix = np.cumsum(flags[::-1])[::-1] / np.arange(len(flags), 0, -1)
    lasting = rows[suffix[rows] >= share]
    if not len(lasting) or len(flags) - lasting[0] < FEW:
        return None
    return int(lasting[0])


def since(view: CaseView, row: int, kind: str) -> int:
    """Return the step from which on a call is out of place, in a trace that shows it from `row` on.

    Of an older part of a run a row stands for many steps. What capture noted then is exact.
    """
    notes = [note.step for note in view.observations.get(kind, ())]
    return next((s for s in notes if abs(view.row_at(s) - row) <= 1), view.label(row))


def loop_fault(
    view: CaseView, cause: str, step: int, sentence: str, confidence: float
) -> Assessment:
    """Return the assessment of a loop that is written wrongly from the step `step` on."""
    title = cause.replace("_", " ").capitalize()
    evidence = view.events(types=["wiring_fault"], most=3)
    return Assessment(
        cause=cause,
        failure=FailureType.TRAINING_WIRING,
        confidence=confidence,
        description=f"{title} from step {step}: {sentence}.",
        onset=step,
        onset_range=(step, step),
        evidence=evidence,
        chain=(link(None, step, sentence),),
        explains=SYMPTOMATIC | {"target_outlier", "unnormalized_target", "stale_second_moment"},
        is_direct=True,
    )
