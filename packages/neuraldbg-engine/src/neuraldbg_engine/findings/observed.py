# SPDX-License-Identifier: LicenseRef-Proprietary
"""What capture saw by itself: one finding for each kind of its observations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.detectors.objective_mismatch import KINDS as OBJECTIVE_KINDS
from neuraldbg.reasoning.causes.observed import CONFIRMED_WITHIN, UNSURE
from neuraldbg.reasoning.kinds import KINDS
from neuraldbg.reasoning.particulars import particulars
from neuraldbg_engine.findings.finding import Graded, Look, finding, graded
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from neuraldbg.schema.facts import Observation
    from neuraldbg_engine.findings.case import Case

PREFIX = "observed."
OBJECTIVE = "what the audit of the loss saw; its own confidence"
WIRING = "what capture saw of the model and the loop; its own confidence"
AUDITED = (OBJECTIVE_KINDS - {"labels_unrelated"}) | {"detached_term", "inplace_skip"}
"""Kinds of the audit of the loss: unavailable where it saw no loss. Two of them are events of the
wiring; that labels fit nothing is found out over several steps, without it."""


USUAL = 0.3
"""Confidence left where core's rule takes what was seen for common practice, or sees no harm."""


def _onset(note: Observation, start: int) -> Onset:
    """Return since when: what capture confirms over the first steps holds from the start."""
    if note.step <= CONFIRMED_WITHIN:
        return Onset.within(start, max(note.step, start), start)
    return Onset.exact(note.step)


def _look(kind: str, prior: float) -> Look:
    def look(case: Case) -> Graded | None:
        view = case.view
        if not case.rows or (kind in AUDITED and not case.trace.observations):
            return None
        notes = view.observations.get(kind, [])
        if not notes:
            return graded(0.0)
        best = max(
            notes,
            key=lambda n: (
                n.figures.get("confidence", prior),
                -n.step,
                -view.flow.place.get(n.layer or "", 0),
            ),
        )
        sure = float(best.figures.get("confidence", prior))
        if kind in KINDS and not KINDS[kind].is_due(view):
            sure = min(sure, USUAL)
        words = particulars(best)
        return graded(
            sure,
            f"{kind.replace('_', ' ')}{': ' + words if words else ''}",
            best.layer,
            _onset(best, view.label(0)),
            confidence=sure,
            places=len(notes),
        )

    return look


ELSEWHERE = {
    "rank_divergence": "weights of two ranks part",
    "wrapper_bypassed": "a model is called past its distributed wrapper",
}
"""Kinds that core judges in files of their own, and what they say."""

for _kind, _says in ELSEWHERE.items():
    finding(PREFIX + _kind, WIRING, meaning=f"Capture saw: {_says}.")(_look(_kind, UNSURE))

for _kind, _known in KINDS.items():
    finding(
        PREFIX + _kind,
        OBJECTIVE if _kind in AUDITED else WIRING,
        meaning=f"Capture saw: {_known.sentence.format(where='a layer')}.",
    )(_look(_kind, max(_known.prior, UNSURE)))
