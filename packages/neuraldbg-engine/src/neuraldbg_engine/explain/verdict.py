# SPDX-License-Identifier: LicenseRef-Proprietary
"""From a posterior to hypotheses: which causes are told, with which layer, step and evidence."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from neuraldbg.causes import UNKNOWN, vocabulary
from neuraldbg.reasoning.rank import LEAST, MOST, rank
from neuraldbg.schema.hypotheses import CausalHypothesis, CausalLink
from neuraldbg.schema.vocabulary import FailureType, Severity
from neuraldbg_engine.calibration import shipped
from neuraldbg_engine.causes import Strength, deck
from neuraldbg_engine.causes.card import OPPOSITE
from neuraldbg_engine.explain import wording
from neuraldbg_engine.explain.draft import Draft
from neuraldbg_engine.findings import Case, all_findings, registered
from neuraldbg_engine.graph import chain_for
from neuraldbg_engine.inference import evidence_of, infer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.trace import Trace
    from neuraldbg_engine.calibration import Calibration
    from neuraldbg_engine.causes import Card, Deck
    from neuraldbg_engine.findings import Finding
    from neuraldbg_engine.inference import Posterior

LEAST_HEARD = 0.04
"""What `LEAST` is for a cause that one of core's rules speaks up for: it may be asked for."""
FAULTY = 0.5
"""Probability of a fault from which the engine says anything where core's rules do not."""
SILENT = 0.05
"""Probability that nothing is wrong above which the engine keeps quiet where core does."""
OVERRULED = 1000.0
"""Odds by which another cause must beat the one that core's ranking has first to be told before it.
Heuristic: core's rules see the whole run, cards see graded facts. On the zoo every overruling at
smaller odds was wrong."""
CLEAR = 0.8
"""Grade from which a decisive finding makes a failure where no specialist spoke up."""
HELD = 0.5
"""Grade from which a finding is told as a fact."""
BEFORE = 3
"""Steps by which an event must precede an onset not to follow from it."""
CITED = 4
"""Events that are cited for one hypothesis."""


def explain(
    trace: Trace, cards: Deck | None = None, numbers: Calibration | None = None
) -> list[CausalHypothesis]:
    """Return what went wrong in a run and why, most probable first; empty on a healthy run.

    Args:
        trace: The run.
        cards: Causes to choose from; None: the engine's own.
        numbers: Parameters; None: those the release was shipped with.
    """
    if not trace.step_count:
        return []
    case = Case(trace)
    return Verdict(case, all_findings(case), cards or deck(), numbers or shipped()).hypotheses


class Verdict:
    """One examined run: its findings, what is probable, and the hypotheses that follow."""

    def __init__(
        self, case: Case, findings: Mapping[str, Finding], cards: Deck, numbers: Calibration
    ) -> None:
        """Weigh all causes."""
        self.case = case
        self.cards = cards
        self.numbers = numbers
        self.findings = findings
        ranked = rank(case.assessments)
        self.first = ranked[0].cause if ranked else None
        self.is_seen_unknown = self.first == UNKNOWN and ranked[0].is_direct
        """Whether core saw, not merely supposed, that the failure is of no known cause."""
        self.posterior: Posterior = infer(evidence_of(findings, self.first), cards, numbers)

    @cached_property
    def leading(self) -> list[str]:
        """Causes worth telling, most probable first; empty where nothing seems wrong."""
        probable, sure = self.posterior.causes, self.numbers.confidence
        if self.first is None and 1 - self.posterior.none < FAULTY:
            return []
        impossible = self.case.ruled_out - set(self.assessments)
        named = [name for name in probable if name != UNKNOWN and name not in impossible]
        if self.first in named and _odds(probable[named[0]]) < OVERRULED * _odds(
            probable[self.first]
        ):
            named.remove(self.first)
            named.insert(0, self.first)
        if not self.assessments:
            # Core weighed every cause of its own vocabulary and keeps quiet: so does the engine.
            named = [n for n in named if n not in vocabulary().causes and self._is_seen(n)]
            if not named or self.posterior.none > SILENT:
                return []
        elif self.is_seen_unknown:
            named.insert(0, UNKNOWN)
        elif probable[UNKNOWN] > probable[named[0]] or not any(map(self._is_seen, named)):
            # A cause that core's rules name stays first, at its low confidence.
            named.insert(1 if named[0] == self.first else 0, UNKNOWN)
        told = [
            name
            for place, name in enumerate(named)
            if not place
            or sure(probable[name]) >= (LEAST_HEARD if name in self.assessments else LEAST)
        ]
        return told[:MOST]

    def _is_seen(self, cause: str) -> bool:
        """Whether a specialist speaks up for a cause, or a finding that is decisive for it holds.

        Hints alone, however many, make no failure: a false alarm is worse than a miss.
        """
        return cause in self.assessments or any(
            (self.findings[name].grade or 0.0) >= CLEAR
            for name in self.cards[cause].speaks_for.get(Strength.DECISIVE, ())
            if name in self.findings
        )

    @cached_property
    def assessments(self) -> dict[str, Assessment]:
        """The surest of what core's specialists say, by cause."""
        best: dict[str, Assessment] = {}
        for one in self.case.assessments:
            known = best.get(one.cause)
            if known is None or _rank(one) < _rank(known):
                best[one.cause] = one
        return best

    @cached_property
    def drafts(self) -> list[Draft]:
        """What is known of each leading cause, most probable first."""
        drafts: list[Draft] = []
        for name in self.leading:
            draft = self._draft(name)
            least = drafts[-1].confidence if drafts else 1.0
            drafts.append(replace(draft, confidence=min(draft.confidence, least)))
        return drafts

    @cached_property
    def hypotheses(self) -> list[CausalHypothesis]:
        """The hypotheses, most probable first."""
        return [self._hypothesis(draft, place) for place, draft in enumerate(self.drafts)]

    def _hypothesis(self, draft: Draft, place: int) -> CausalHypothesis:
        chain = chain_for(
            self.case.graph,
            draft.failure,
            draft.layer,
            draft.onset,
            draft.chain,
            is_whole=place == 0,
        )
        told = replace(draft, chain=chain)
        return CausalHypothesis(
            failure_type=draft.failure,
            cause=draft.cause,
            layer=draft.layer,
            onset=draft.onset,
            onset_range=draft.onset_range,
            confidence=draft.confidence,
            description=draft.description,
            evidence=draft.evidence,
            counter_evidence=_against(draft, self.drafts),
            causal_chain=chain,
            remedies=draft.remedies,
            details=wording.details(told, [told if d is draft else d for d in self.drafts]),
        )

    # -- one hypothesis ----------------------------------------------------------------------

    def _draft(self, cause: str) -> Draft:
        card = self.cards.get(cause)
        confidence = self.numbers.confidence(self.posterior.causes[cause])
        one = self.assessments.get(cause)
        if one is not None:
            draft = Draft(
                cause,
                confidence,
                one.failure,
                one.description,
                one.layer,
                one.onset,
                one.onset_range,
                one.evidence,
                one.counter_evidence,
                one.chain,
            )
        else:
            draft = self._from_findings(cause, card, confidence)
        if card is None:
            return draft
        return replace(
            draft,
            remedies=(card.remedy,),
            confirm=card.confirm,
            held=self._holding(card.speaks_for),
            denied=self._holding(card.speaks_against),
            missing=self._missing(card),
        )

    def _from_findings(self, cause: str, card: Card | None, confidence: float) -> Draft:
        """Return the draft of a cause that no specialist spoke up for: its findings place it."""
        held = self._holding(card.speaks_for) if card else ()
        layer = next((one.layer for one in held if one.layer is not None), None)
        onset = next((one.onset for one in held if one.onset is not None), None)
        step = None if onset is None else onset.best
        events = _near(self.case.trace.events, layer, step)
        return Draft(
            cause,
            confidence,
            FailureType(card.failures[0] if card else "optimizer_instability"),
            wording.sentence(cause, layer, step, held),
            layer,
            step,
            None if onset is None else onset.interval(),
            events,
            chain=tuple(
                CausalLink(
                    layer=one.layer,
                    step=None if one.onset is None else one.onset.best,
                    mechanism=one.says,
                )
                for one in sorted(held, key=_begin)
                if one.says
            ),
        )

    def _holding(self, listed: Mapping[Strength, Sequence[str]]) -> tuple[Finding, ...]:
        """Return the findings of a card that hold, the strongest class first, then the clearest."""
        found = [
            (list(Strength).index(strength), -(self.findings[name].grade or 0.0), name)
            for strength, names in listed.items()
            for name in names
            if name in self.findings and (self.findings[name].grade or 0.0) >= HELD
        ]
        return tuple(self.findings[name] for _, _, name in sorted(found))

    def _missing(self, card: Card) -> tuple[str, ...]:
        """Return what the trace cannot say and that would speak clearly for or against a cause."""
        clear = (Strength.DECISIVE, Strength.STRONG)
        names = [
            n for s in clear for n in (*card.speaks_for.get(s, ()), *card.speaks_against.get(s, ()))
        ]
        entries = registered()
        plain = [name.removeprefix(OPPOSITE) for name in names]
        return tuple(
            entries[name].meaning
            for name in dict.fromkeys(plain)
            if name in self.findings and self.findings[name].grade is None
        )


def _odds(probability: float) -> float:
    return probability / max(1 - probability, 1e-9)


def _rank(one: Assessment) -> tuple[float, bool, int]:
    onset = one.onset if one.onset is not None else 1 << 60
    return -one.confidence, not one.is_direct, onset


def _begin(finding: Finding) -> tuple[int, str]:
    return (finding.onset.best if finding.onset is not None else 1 << 60), finding.name


def _near(
    events: Iterable[SemanticEvent], layer: str | None, step: int | None
) -> tuple[SemanticEvent, ...]:
    """Return the events that show what findings place: on that layer or none, from that step on."""
    found = [
        event
        for event in events
        if event.severity is not Severity.INFO
        and (layer is None or event.layer in {layer, None})
        and (step is None or event.step >= step - 1)
    ]
    return tuple(found[:CITED])


def _against(draft: Draft, drafts: Iterable[Draft]) -> tuple[SemanticEvent, ...]:
    """Return the events that this cause cannot have produced: cited by others, before its onset."""
    own = {event.id for event in draft.evidence}
    found = {event.id: event for event in draft.counter_evidence}
    if draft.onset is not None:
        begun = min(draft.onset, *(draft.onset_range or (draft.onset,)))
        for other in drafts:
            for event in other.evidence:
                if event.id not in own and event.step < begun - BEFORE:
                    found.setdefault(event.id, event)
    ordered = sorted(found.values(), key=lambda event: (event.step, event.layer or "", event.id))
    return tuple(ordered[:CITED])
