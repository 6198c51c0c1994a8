# SPDX-License-Identifier: MIT
"""From single assessments to one ranked list: explaining away, first occurrence, a short list."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.causes import UNKNOWN, vocabulary
from neuraldbg.reasoning.causes import assessors
from neuraldbg.schema.hypotheses import CausalHypothesis

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView

MOST = 5
"""Hypotheses on a list: more is a search, not an answer."""
EXPLAINED_AWAY = 0.3
"""What is left of a cause's confidence when another one that is sure would produce its evidence."""
SURE = 0.45
"""Confidence from which a cause explains others away."""
LEAST = 0.1
"""Below this a cause is not worth reading."""

_LOG = logging.getLogger("neuraldbg")


def assess_all(view: CaseView) -> list[Assessment]:
    """Hear every cause. One that fails is named in the log and left out: the others still count."""
    found: list[Assessment] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # slices that nothing was measured in
        _hear(view, found)
    return found


def _hear(view: CaseView, found: list[Assessment]) -> None:
    for name, assess in assessors():
        try:
            answer = assess(view)
        except Exception:  # noqa: BLE001 - one bad cause must not silence the others
            _LOG.exception("cause %r could not be assessed and is left out", name)
            continue
        if isinstance(answer, list):
            found += answer
        elif answer is not None:
            found.append(answer)


def rank(assessments: Iterable[Assessment]) -> list[Assessment]:
    """Weigh the causes against one another and return the best, most probable first.

    A cause that is sure takes confidence from those it explains, unless they began clearly before
    it. Faults seen directly beat readings of symptoms at equal confidence. Ties go to the earlier
    onset, then to the order of the causes: the list is the same on every machine.
    """
    heard = list(assessments)
    weighed = []
    for place, one in enumerate(heard):
        confidence = one.confidence
        for other in heard:
            if other is one or one.cause not in other.explains or other.confidence < SURE:
                continue
            if _is_before(one, other) and not other.is_direct:
                continue
            is_mutual = other.cause in one.explains
            if is_mutual and (other.confidence, other.cause) <= (one.confidence, one.cause):
                continue
            confidence *= 1 - (1 - EXPLAINED_AWAY) * other.confidence
        weighed.append((replace(one, confidence=round(confidence, 4)), place))
    named = any(one.cause != UNKNOWN for one, _ in weighed)
    ordered = sorted(
        (
            (one, place)
            for one, place in weighed
            if one.confidence >= LEAST
            and not (named and one.cause == UNKNOWN and not one.is_direct)
        ),
        key=lambda pair: (
            -pair[0].confidence,
            not pair[0].is_direct,
            pair[0].onset if pair[0].onset is not None else 1 << 60,
            pair[1],
        ),
    )
    kept: dict[str, Assessment] = {}
    for one, _ in ordered:
        kept.setdefault(one.cause, one)
    return list(kept.values())[:MOST]


def _is_before(one: Assessment, other: Assessment) -> bool:
    """Whether `one` began clearly before `other` could have acted."""
    if one.onset is None or other.onset is None:
        return False
    first = other.onset_range[0] if other.onset_range else other.onset
    return one.onset < first - 3


def hypotheses(view: CaseView) -> list[CausalHypothesis]:
    """Return the ranked hypotheses of a run; empty where nothing is wrong."""
    known = vocabulary().causes
    return [
        CausalHypothesis(
            failure_type=one.failure,
            cause=one.cause,
            layer=one.layer,
            onset=one.onset,
            onset_range=one.onset_range,
            confidence=min(max(one.confidence, 0.0), 1.0),
            description=one.description,
            evidence=one.evidence,
            counter_evidence=one.counter_evidence,
            causal_chain=one.chain,
            remedies=(known[one.cause].remedy,) if one.cause in known else (),
        )
        for one in rank(assess_all(view))
    ]
