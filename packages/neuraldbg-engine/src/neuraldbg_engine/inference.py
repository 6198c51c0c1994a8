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
from neuraldbg_engine.causes.card import OPPOSITE, Strength

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from neuraldbg_engine.calibration import Calibration
    from neuraldbg_engine.causes import Card, Deck
    from neuraldbg_engine.findings import Finding

    Array = NDArray[np.float64]

SPECIALIST = "specialist."
NONE, OTHER, NAMED = 0, 1, 2
"""Kinds of explanations: nothing is wrong, a fault on no card, causes of the deck."""
DIGITS = 9
"""Digits of a probability: what differs in the last bits between machines must not reorder."""
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
    first: str | None = None
    """The cause that core's own ranking puts first; None: it names none."""

    def grade(self, name: str) -> float | None:
        """Return the grade of a finding, or of its opposite where the name says so."""
        value = self.grades.get(name.removeprefix(OPPOSITE))
        if value is None:
            return None
        return 1.0 - value if name.startswith(OPPOSITE) else value


def evidence_of(findings: Mapping[str, Finding], first: str | None = None) -> Evidence:
    """Return what inference reads of the findings of a case.

    Args:
        findings: By name.
        first: The cause that core's own ranking puts first.
    """
    grades = {n: f.grade for n, f in findings.items() if not n.startswith(SPECIALIST)}
    opinions = {
        name.removeprefix(SPECIALIST): _opinion(finding)
        for name, finding in findings.items()
        if name.startswith(SPECIALIST) and finding.grade
    }
    return Evidence(grades, opinions, None if first == UNKNOWN else first)


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
    return solve(Network(evidence, deck), numbers)


def solve(network: Network, numbers: Calibration) -> Posterior:
    """Return how probable each cause of a network is: by enumeration of none, one and two."""
    count = len(network.causes)
    members = np.vstack([np.zeros((2, count)), np.eye(count)])
    kinds = np.array([NONE, OTHER, *[NAMED] * count])
    keys: list[tuple[str, ...]] = [(), (UNKNOWN,), *((name,) for name in network.causes)]
    scores = dict(zip(keys, network.scores(members, kinds, numbers), strict=True))
    best = sorted(keys[2:], key=lambda one: (-scores[one], one))[:BEST]
    pairs = [(*one, *two) for one, two in combinations(best, 2)]
    if pairs:
        column = {name: index for index, name in enumerate(network.causes)}
        members = np.zeros((len(pairs), count))
        for row, pair in enumerate(pairs):
            members[row, [column[name] for name in pair]] = 1.0
        kinds = np.full(len(pairs), NAMED)
        scores |= zip(pairs, network.scores(members, kinds, numbers), strict=True)
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
    summed = {name: round(math.fsum(parts), DIGITS) for name, parts in causes.items()}
    ordered = sorted(summed, key=lambda name: (-summed[name], name))
    listed = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    return Posterior(shares[()], {name: summed[name] for name in ordered}, tuple(listed[:BEST]))


class Network:
    """The network over one run's evidence, without the parameters: those come with a question.

    Arrays are `[C, F]` and the like: `C` causes in the order of the deck, `F` findings that are
    available and speak for some cause, `O` opinions, `E` explanations.
    """

    def __init__(self, evidence: Evidence, deck: Deck) -> None:
        """Lay out the evidence."""
        self.causes = tuple(deck)
        listed = dict.fromkeys(n for c in deck.values() for s in c.speaks_for.values() for n in s)
        self.findings = tuple(name for name in listed if evidence.grade(name) is not None)
        self.grades = np.array([evidence.grade(name) or 0.0 for name in self.findings])
        self.opinions = evidence.opinions
        self.first = evidence.first
        self._strengths = self._lay_out(deck.values())
        self._denials = np.array([_denials(card, evidence) for card in deck.values()])
        self._contexts = np.array([_context(card, evidence) for card in deck.values()])
        self._silent = np.array([float(name not in self.opinions) for name in deck])
        self._explained = {
            cause: np.array([self._explains(card, cause) for card in deck.values()], dtype=float)
            for cause in self.opinions
        }

    def _lay_out(self, cards: Iterable[Card]) -> NDArray[np.intp]:
        """Return how strongly each finding speaks for each cause, `[C, F]`; 0: not at all."""
        place = {name: index for index, name in enumerate(self.findings)}
        strengths = np.zeros((len(self.causes), len(place)), dtype=np.intp)
        for row, card in enumerate(cards):
            for level, strength in enumerate(Strength, 1):
                for name in card.speaks_for.get(strength, ()):
                    if name in place:
                        strengths[row, place[name]] = level
        return strengths

    def _explains(self, card: Card, cause: str) -> bool:
        """Whether a cause at work would make the specialist of another one speak up."""
        own = self.opinions.get(card.id)
        if cause not in card.explains and (own is None or cause not in own.explains):
            return False
        return own is None or own.is_direct or not _is_before(self.opinions[cause], own)

    def scores(self, members: Array, kinds: Array, numbers: Calibration) -> list[float]:
        """Return the log-probability of explanations together with the evidence.

        Args:
            members: `[E, C]`, 1 where a cause is at work.
            kinds: `[E]`: `NONE`, `OTHER` (a fault on no card) or `NAMED`.
            numbers: Parameters of the model.
        """
        levels = np.array([0.0, *(math.log1p(-numbers.seen[s]) for s in Strength)])
        quiet = _leaks(map(numbers.quiet_leak, self.findings))
        faulty = _leaks(map(numbers.faulty_leak, self.findings))
        off = np.where((kinds == NONE)[:, None], np.log1p(-quiet), np.log1p(-faulty))
        off = off + members @ levels[self._strengths]
        on = np.log(np.maximum(-np.expm1(off), 1e-12))
        total = on @ self.grades + off @ (1 - self.grades)
        denied = np.array([math.log1p(-numbers.denied[s]) for s in Strength])
        alone = self._denials @ denied + math.log(numbers.more) * self._contexts
        alone = alone + math.log(1 - numbers.opinion_seen) * self._silent
        total = total + members @ alone + self._priors(members, kinds, numbers)
        for cause, opinion in self.opinions.items():
            total = total + self._opinion(cause, opinion, members, kinds, numbers)
        if self.first in self.causes:
            has_first = members[:, self.causes.index(self.first)] > 0
            right, wrong = math.log(numbers.first_right), math.log(1 - numbers.first_right)
            total = total + np.where(has_first, right, wrong)
        return [float(score) for score in total]

    def _priors(self, members: Array, kinds: Array, numbers: Calibration) -> Array:
        count = len(self.causes)
        one = math.log((1 - numbers.none - numbers.unknown - numbers.pair) / count)
        two = math.log(2 * numbers.pair / max(count * (count - 1), 1))
        other = math.log(numbers.unknown)
        if UNKNOWN not in self.opinions:
            other += math.log(1 - numbers.opinion_seen)
        named = np.where(members.sum(axis=1) > 1, two, one)
        special = np.where(kinds == OTHER, other, math.log(numbers.none))
        return np.where(kinds == NAMED, named, special)

    def _opinion(
        self, cause: str, opinion: Opinion, members: Array, kinds: Array, numbers: Calibration
    ) -> Array:
        """Return the log-probability that a specialist says what it says, `[E]`."""
        first, second = numbers.opinion_ratio
        ratio = first + second * opinion.confidence + numbers.opinion_direct * opinion.is_direct
        ratio = max(ratio, 0.0)
        wrong = math.exp(-ratio)
        explained = math.log(wrong + (1 - wrong) * numbers.opinion_explained)
        if cause == UNKNOWN:
            # Whatever is at work makes the run fail, and a failing run is all that this one sees.
            score = np.where(kinds == OTHER, 0.0, explained)
        else:
            score = np.where(members @ self._explained[cause] > 0, explained, -ratio)
            if cause in self.causes:
                score = np.where(members[:, self.causes.index(cause)] > 0, 0.0, score)
        score = np.where(kinds == NONE, -ratio - numbers.opinion_quiet, score)
        return score + math.log(numbers.opinion_seen)


def _denials(card: Card, evidence: Evidence) -> list[float]:
    """Return the grades that speak against a cause, summed by strength, `[4]`."""
    return [
        math.fsum(evidence.grade(name) or 0.0 for name in card.speaks_against.get(strength, ()))
        for strength in Strength
    ]


def _context(card: Card, evidence: Evidence) -> float:
    """Return by how many times `more` the context moves a cause's prior odds."""
    return math.fsum(
        (evidence.grade(name) or 0.0) * (1 if direction == "more" else -1)
        for name, direction in card.where.items()
    )


def _is_before(one: Opinion, other: Opinion) -> bool:
    """Whether `one` began clearly before `other` could have acted."""
    if one.onset is None or other.onset is None:
        return False
    first = other.first if other.first is not None else other.onset
    return one.onset < first - CLEARLY_BEFORE


def _leaks(values: Iterable[float]) -> Array:
    return np.clip(np.array(list(values), dtype=np.float64), 1e-6, 0.95)
