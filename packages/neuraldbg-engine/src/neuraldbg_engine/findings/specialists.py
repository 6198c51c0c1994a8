# SPDX-License-Identifier: LicenseRef-Proprietary
"""What core's own specialists say: one finding for each cause of core's vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.causes import UNKNOWN, vocabulary, words
from neuraldbg_engine.findings.finding import Graded, Look, finding, graded
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg_engine.findings.case import Case

PREFIX = "specialist."
SOURCE = "core's rule for this cause, documented on its page"


def best_of(case: Case, cause: str) -> Assessment | None:
    """Return the surest assessment of a cause; the direct one, then the earlier one, of equals."""
    heard = [one for one in case.assessments if one.cause == cause]
    if not heard:
        return None
    return max(
        heard,
        key=lambda a: (a.confidence, a.is_direct, -(a.onset if a.onset is not None else 1 << 60)),
    )


def onset_of(assessment: Assessment) -> Onset | None:
    """Return the onset of an assessment as a distribution over the range that it gives."""
    if assessment.onset is None:
        return None
    first, last = assessment.onset_range or (assessment.onset, assessment.onset)
    return Onset.within(first, last, min(max(assessment.onset, first), last))


def _look(cause: str) -> Look:
    def look(case: Case) -> Graded | None:
        one = best_of(case, cause)
        if one is None:
            return graded(0.0)
        return graded(
            one.confidence,
            one.description,
            one.layer,
            onset_of(one),
            is_direct=int(one.is_direct),
            failure=str(one.failure),
            explains=",".join(sorted(one.explains)),
        )

    return look


for _cause in (*vocabulary().causes, UNKNOWN):
    finding(PREFIX + _cause, SOURCE, meaning=f"Core's specialist is sure of: {words(_cause)}.")(
        _look(_cause)
    )
