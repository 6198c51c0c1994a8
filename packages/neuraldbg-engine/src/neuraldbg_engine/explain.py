# SPDX-License-Identifier: LicenseRef-Proprietary
"""From a posterior to hypotheses in words: one sentence, then why, since when, where, how sure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from neuraldbg.causes import UNKNOWN, words
from neuraldbg.schema.hypotheses import CausalHypothesis, CausalLink
from neuraldbg.schema.vocabulary import FailureType
from neuraldbg_engine import wording
from neuraldbg_engine.calibration import shipped
from neuraldbg_engine.causes import Strength, deck
from neuraldbg_engine.findings import Case, all_findings
from neuraldbg_engine.inference import Posterior, evidence_of, infer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.trace import Trace
    from neuraldbg_engine.calibration import Calibration
    from neuraldbg_engine.causes import Card, Deck
    from neuraldbg_engine.findings import Finding

MOST = 5
"""Hypotheses on a list, as core has it: more is a search, not an answer."""
LEAST = 0.04
"""Confidence below which a cause that is not the first is not worth reading."""
FAULTY = 0.5
"""Probability of a fault from which the engine says anything."""
HELD = 0.5
"""Grade from which a finding is told as a fact."""


def explain(
    trace: Trace, *, cards: Deck | None = None, numbers: Calibration | None = None
) -> list[CausalHypothesis]:
    """Return what went wrong in a run and why, most probable first; empty on a healthy run.

    Args:
        trace: The run.
        cards: Causes to choose from; None: the engine's own.
        numbers: Parameters; None: those the release was shipped with.
    """
    verdict = Verdict(Case(trace), cards or deck(), numbers or shipped())
    return verdict.hypotheses


class Verdict:
    """One examined run: its findings, what is probable, and the hypotheses that follow."""

    def __init__(self, case: Case, cards: Deck, numbers: Calibration) -> None:
        """Look for every finding and weigh all causes."""
        self.case = case
        self.cards = cards
        self.numbers = numbers
        self.findings: Mapping[str, Finding] = all_findings(case)
        self.posterior: Posterior = infer(evidence_of(self.findings), cards, numbers)

    @cached_property
    def leading(self) -> list[str]:
        """Causes worth telling, most probable first; empty where nothing seems wrong."""
        probable = self.posterior.causes
        if 1 - self.posterior.none < FAULTY or not self._is_grounded:
            return []
        named = [name for name in probable if name != UNKNOWN]
        if self._is_unknown(named[0]):
            named = [UNKNOWN, *named]
        sure = self.numbers.confidence
        return [
            name for place, name in enumerate(named) if not place or sure(probable[name]) >= LEAST
        ][:MOST]

    @cached_property
    def _is_grounded(self) -> bool:
        """Whether a specialist spoke up, or a finding that is decisive for its cause holds.

        Hints alone, however many, make no failure: a false alarm is worse than a miss.
        """
        if self.assessments:
            return True
        return any(
            (self.findings[name].grade or 0.0) >= 0.8
            for card in self.cards.values()
            for name in card.speaks_for.get(Strength.DECISIVE, ())
            if name in self.findings
        )

    def _is_unknown(self, first: str) -> bool:
        probable = self.posterior.causes
        return probable[UNKNOWN] > probable[first]

    @cached_property
    def assessments(self) -> dict[str, Assessment]:
        """The best that core's specialists say, by cause."""
        best: dict[str, Assessment] = {}
        for one in self.case.assessments:
            known = best.get(one.cause)
            if known is None or _rank(one) < _rank(known):
                best[one.cause] = one
        return best

    @cached_property
    def hypotheses(self) -> list[CausalHypothesis]:
        """The hypotheses, most probable first."""
        drafts = [self._draft(name) for name in self.leading]
        return [
            CausalHypothesis(
                failure_type=draft.failure,
                cause=draft.cause,
                layer=draft.layer,
                onset=draft.onset,
                onset_range=draft.onset_range,
                confidence=draft.confidence,
                description=draft.description,
                evidence=draft.evidence,
                counter_evidence=_against(draft, drafts),
                causal_chain=draft.chain,
                remedies=draft.remedies,
                details=wording.details(draft, drafts),
            )
            for draft in drafts
        ]

    def _draft(self, cause: str) -> wording.Draft:
        card = self.cards.get(cause)
        one = self.assessments.get(cause)
        held = self._held(card)
        common = {
            "cause": cause,
            "confidence": self.numbers.confidence(self.posterior.causes[cause]),
            "held": held,
            "denied": self._denied(card),
            "confirm": card.confirm if card else "",
            "remedies": (card.remedy,) if card else (),
        }
        if one is None:
            return self._from_card(card, common)
        return wording.Draft(
            **common,
            failure=one.failure,
            layer=one.layer,
            onset=one.onset,
            onset_range=one.onset_range,
            description=one.description,
            evidence=one.evidence,
            counter_evidence=one.counter_evidence,
            chain=one.chain,
        )
