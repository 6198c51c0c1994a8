# SPDX-License-Identifier: LicenseRef-Proprietary
"""From findings to the probability of every cause: a noisy-OR network, solved by enumeration.

Explanations are: nothing is wrong; something that is on no card; one cause; two causes. Each cause
produces each finding of its card with a probability of its strength, independently; a finding that
no cause at work produces may still hold (its leak). So a finding that one cause explains lends no
weight to another: explaining-away is the model, not a rule.

A finding of grade g counts as held g times and as not held 1 - g times (its expected
log-likelihood). One that is unavailable counts for nothing.

The network and its soft evidence follow Pearl, Probabilistic Reasoning in Intelligent Systems
(1988), sections 2.2 and 4.3; the same shape served QMR-DT (Shwe et al. 1991).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.causes import UNKNOWN
from neuraldbg_engine.causes.card import OPPOSITE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from neuraldbg_engine.calibration import Calibration
    from neuraldbg_engine.causes import Card, Deck
    from neuraldbg_engine.findings import Finding

    Array = NDArray[np.float64]

SPECIALIST = "specialist."
BEST = 8
"""Single causes out of which pairs are formed. Heuristic: a cause that is not among the eight most
probable ones alone gains nothing from a partner in the runs that we have."""
CLEARLY_BEFORE = 3
"""Steps by which a cause must have begun earlier not to be explained by a later one."""


@dataclass(frozen=True)
class Opinion:
    """What core's specialist says of one cause."""

    confidence: float
    is_direct: bool = False
    """Whether it saw the fault itself, not its consequences."""
    explains: frozenset[str] = frozenset()
    onset: int | None = None
    first: int | None = None
    """First step of the range of its onset."""


@dataclass(frozen=True)
class Evidence:
    """Everything that inference reads of a run."""

    grades: Mapping[str, float | None]
    """Grade of every direct finding by name; None: unavailable."""
    opinions: Mapping[str, Opinion] = field(default_factory=dict)
    """Specialists that spoke up, by cause; `unknown` is one of them."""

    def grade(self, name: str) -> float | None:
        """Return the grade of a finding, or of its opposite where the name says so."""
        value = self.grades.get(name.removeprefix(OPPOSITE))
        if value is None:
            return None
        return 1.0 - value if name.startswith(OPPOSITE) else value


def evidence_of(findings: Mapping[str, Finding]) -> Evidence:
    """Return what inference reads of the findings of a case."""
    grades = {n: f.grade for n, f in findings.items() if not n.startswith(SPECIALIST)}
    opinions = {
        name.removeprefix(SPECIALIST): _opinion(finding)
        for name, finding in findings.items()
        if name.startswith(SPECIALIST) and finding.grade
    }
    return Evidence(grades, opinions)


def _opinion(finding: Finding) -> Opinion:
    figures, onset = finding.figures, finding.onset
    return Opinion(
        finding.grade or 0.0,
        bool(figures.get("is_direct")),
        frozenset(filter(None, str(figures.get("explains", "")).split(","))),
        None if onset is None else onset.best,
        None if onset is None else onset.interval(1.0)[0],
    )


@dataclass(frozen=True)
class Posterior:
    """What is probable, given the evidence."""

    none: float
    """That nothing is wrong."""
    causes: Mapping[str, float]
    """Probability that a cause is at work, alone or with another; most probable first. `unknown`
    is one of them."""
    explanations: tuple[tuple[tuple[str, ...], float], ...]
    """The most probable explanations, each with its causes; () is "nothing is wrong"."""


def infer(evidence: Evidence, deck: Deck, numbers: Calibration) -> Posterior:
    """Return how probable each cause is.

    Args:
        evidence: Findings and opinions.
        deck: Cards of all causes.
        numbers: Parameters of the model.
    """
    model = Model(evidence, deck, numbers)
    singles: list[tuple[str, ...]] = [(), *((name,) for name in (UNKNOWN, *deck))]
    scores = dict(zip(singles, model.scores(singles), strict=True))
    best = sorted(singles[2:], key=lambda one: (-scores[one], one))[:BEST]
    pairs = [(*one, *two) for one, two in combinations(best, 2)]
    scores |= zip(pairs, model.scores(pairs), strict=True)
    return _normalised(scores)


def _normalised(scores: Mapping[tuple[str, ...], float]) -> Posterior:
    top = max(scores.values())
    weights = {key: math.exp(score - top) for key, score in scores.items()}
    total = math.fsum(weights.values())
    shares = {key: weight / total for key, weight in weights.items()}
    causes: dict[str, list[float]] = {}
    for key, share in shares.items():
        for name in key:
            causes.setdefault(name, []).append(share)
    summed = {name: math.fsum(parts) for name, parts in causes.items()}
    ordered = sorted(summed, key=lambda name: (-summed[name], name))
    listed = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    return Posterior(shares[()], {name: summed[name] for name in ordered}, tuple(listed[:BEST]))


class Model:
    """The network over one run's evidence: scores explanations by their joint log-probability.

    Arrays are `[E, C]`, `[C, F]`: `E` explanations, `C` causes in the order of the deck, `F`
    findings that are available and speak for some cause.
    """

    def __init__(self, evidence: Evidence, deck: Deck, numbers: Calibration) -> None:
        """Lay out the evidence."""
        self.evidence = evidence
        self.deck = deck
        self.numbers = numbers
        self.column = {name: index for index, name in enumerate(deck)}
        listed = dict.fromkeys(n for c in deck.values() for s in c.speaks_for.values() for n in s)
        names = [name for name in listed if evidence.grade(name) is not None]
        self.grades = np.array([evidence.grade(name) or 0.0 for name in names])
        self._quiet = np.log1p(-_leaks(map(numbers.quiet_leak, names)))
        self._faulty = np.log1p(-_leaks(map(numbers.faulty_leak, names)))
        self._misses = self._lay_out({name: index for index, name in enumerate(names)})
        self._own = np.array([self._alone(name, card) for name, card in deck.items()])

    def scores(self, explanations: Sequence[tuple[str, ...]]) -> list[float]:
        """Return the log-probability of each explanation together with the evidence."""
        if not explanations:
            return []
        members = np.zeros((len(explanations), len(self.deck)))
        for row, explanation in enumerate(explanations):
            for name in explanation:
                if name != UNKNOWN:
                    members[row, self.column[name]] = 1.0
        is_quiet = np.array([not one for one in explanations])
        off = np.where(is_quiet[:, None], self._quiet, self._faulty) + members @ self._misses
        on = np.log(np.maximum(-np.expm1(off), 1e-12))
        total = on @ self.grades + off @ (1 - self.grades) + members @ self._own
        total += [self._prior(one) for one in explanations]
        for cause, opinion in self.evidence.opinions.items():
            total += self._opinion(cause, opinion, members, explanations)
        return [float(score) for score in total]

    def _lay_out(self, place: Mapping[str, int]) -> Array:
        """Return the log-probability that each cause does not produce each finding, `[C, F]`."""
        misses = np.zeros((len(self.deck), len(place)))
        for row, card in enumerate(self.deck.values()):
            for strength, names in card.speaks_for.items():
                for name in names:
                    if name in place:
                        misses[row, place[name]] = math.log1p(-self.numbers.seen[strength])
        return misses

    def _alone(self, name: str, card: Card) -> float:
        """Return what a cause's own context, counter-evidence and silent specialist add."""
        grade, numbers = self.evidence.grade, self.numbers
        score = 0.0 if name in self.evidence.opinions else math.log(1 - numbers.opinion_seen)
        for context, direction in card.where.items():
            size = math.log(numbers.more) * (grade(context) or 0.0)
            score += size if direction == "more" else -size
        for strength, names in card.speaks_against.items():
            for each in names:
                score += (grade(each) or 0.0) * math.log1p(-numbers.denied[strength])
        return score

    def _prior(self, explanation: tuple[str, ...]) -> float:
        numbers, count = self.numbers, len(self.deck)
        if not explanation:
            return math.log(numbers.none)
        if UNKNOWN in explanation:
            silent = UNKNOWN not in self.evidence.opinions
            return math.log(numbers.unknown) + silent * math.log(1 - numbers.opinion_seen)
        if len(explanation) == 1:
            return math.log((1 - numbers.none - numbers.unknown - numbers.pair) / count)
        return math.log(2 * numbers.pair / (count * (count - 1)))

    def _opinion(
        self,
        cause: str,
        opinion: Opinion,
        members: Array,
        explanations: Sequence[tuple[str, ...]],
    ) -> Array:
        """Return the log-probability that a specialist says what it says, `[E]`."""
        numbers = self.numbers
        first, second = numbers.opinion_ratio
        ratio = max(
            first + second * opinion.confidence + numbers.opinion_direct * opinion.is_direct, 0.0
        )
        wrong = math.exp(-ratio)
        explained = wrong + (1 - wrong) * numbers.opinion_explained
        explains = np.array([self._explains(name, cause, opinion) for name in self.deck])
        score = np.where(members @ explains > 0, math.log(explained), -ratio)
        for row, explanation in enumerate(explanations):
            if cause in explanation:
                score[row] = 0.0
            elif not explanation:
                score[row] = -ratio - numbers.opinion_quiet
            elif cause == UNKNOWN:
                score[row] = math.log(explained)
        return score + math.log(numbers.opinion_seen)

    def _explains(self, name: str, cause: str, opinion: Opinion) -> bool:
        """Whether a cause at work would make the specialist of another one speak up."""
        own = self.evidence.opinions.get(name)
        if cause not in self.deck[name].explains and (own is None or cause not in own.explains):
            return False
        return own is None or own.is_direct or not _is_before(opinion, own)


def _is_before(one: Opinion, other: Opinion) -> bool:
    """Whether `one` began clearly before `other` could have acted."""
    if one.onset is None or other.onset is None:
        return False
    first = other.first if other.first is not None else other.onset
    return one.onset < first - CLEARLY_BEFORE


def _leaks(values: Iterable[float]) -> Array:
    return np.clip(np.array(list(values), dtype=np.float64), 1e-6, 0.95)
