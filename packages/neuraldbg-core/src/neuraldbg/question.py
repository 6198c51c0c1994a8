# SPDX-License-Identifier: MIT
"""What a user asks about: one name in, the hypotheses that answer it out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from neuraldbg.causes import unknown_name
from neuraldbg.schema.keys import FAMILIES, STATES, SYMPTOMS, failure_key, key
from neuraldbg.schema.vocabulary import (
    ActivationHealth,
    DataHealth,
    EventType,
    FailureType,
    GradientHealth,
    OptimizerHealth,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.hypotheses import CausalHypothesis

ENUM_FAMILIES: dict[type[StrEnum], EventType] = {
    GradientHealth: EventType.GRADIENT_HEALTH_TRANSITION,
    ActivationHealth: EventType.ACTIVATION_REGIME_SHIFT,
    OptimizerHealth: EventType.OPTIMIZER_INSTABILITY,
    DataHealth: EventType.DATA_ANOMALY,
}


@dataclass(frozen=True)
class Question:
    """A failure that a user asks about, as things to look for in hypotheses and events."""

    failures: frozenset[FailureType] = frozenset()
    keys: tuple[str, ...] = ()
    """Failure keys (fnmatch patterns) of the events that show it."""
    cause: str = ""
    is_strict: bool = False
    """Whether events count only where no hypothesis is of the failure type itself."""

    def is_about(self, event: SemanticEvent) -> bool:
        """Say whether the event shows what is asked about."""
        name = failure_key(event)
        return any(fnmatchcase(name, pattern) for pattern in self.keys)

    def answers(self, hypotheses: Iterable[CausalHypothesis]) -> list[CausalHypothesis]:
        """Return the hypotheses that answer, in the order given.

        Asked for a failure type, these are the hypotheses of that type; where there is none, those
        whose evidence shows it. Asked for a state or an event type, both.
        """
        all_ = list(hypotheses)
        named = [each for each in all_ if self._is_named(each)]
        if self.is_strict and named:
            return named
        return [
            each for each in all_ if self._is_named(each) or any(map(self.is_about, each.evidence))
        ]

    def _is_named(self, hypothesis: CausalHypothesis) -> bool:
        return hypothesis.failure_type in self.failures or hypothesis.cause == self.cause


def understand(
    name: object, *, causes: Iterable[str] = (), events: Sequence[SemanticEvent] = ()
) -> Question:
    """Return the question behind a failure type, event type, state, failure key or cause id.

    Args:
        name: An enum member or a string in any case; blanks and hyphens count as underscores.
        causes: Ids of the causes that may be asked for.
        events: Events of the run, whose states may be asked for too.

    Raises:
        UnknownNameError: There is no such name; the message has the nearest ones.

    Example:
        >>> understand("Gradient-Vanishing").keys
        ('gradient_vanishing',)
    """
    if isinstance(name, EventType):
        return _of_type(name)
    family = ENUM_FAMILIES.get(type(name)) if isinstance(name, StrEnum) else None
    if family is not None:
        return _of_keys(key(family, str(name)))
    known = _table(causes, events)
    spoken = str(name).strip().lower().replace("-", "_").replace(" ", "_")
    if spoken not in known:
        raise unknown_name("failure", name, known)
    return known[spoken]


def names(causes: Iterable[str], events: Sequence[SemanticEvent]) -> list[str]:
    """Return every name that can be asked for, as `understand` takes them."""
    return list(_table(causes, events))


def _of_type(event_type: EventType) -> Question:
    prefix = f"{FAMILIES[event_type]}_"
    failures = frozenset(
        failure for failure, patterns in SYMPTOMS.items() if patterns[0].startswith(prefix)
    )
    return Question(failures, (f"{prefix}*",))


def _of_keys(*keys: str) -> Question:
    failures = frozenset(failure for failure, patterns in SYMPTOMS.items() if patterns[0] in keys)
    return Question(failures, keys)


def _table(causes: Iterable[str], events: Sequence[SemanticEvent]) -> dict[str, Question]:
    """Return every name that can be asked for; where two meanings collide, the first stays."""
    table: dict[str, Question] = {
        str(failure): Question(frozenset({failure}), patterns, is_strict=True)
        for failure, patterns in SYMPTOMS.items()
    }
    for event_type in EventType:
        table.setdefault(str(event_type), _of_type(event_type))
    states = [(kind, str(state)) for kind, known in STATES.items() for state in known]
    states += [(event.event_type, event.to_state) for event in events]
    by_state: dict[str, list[str]] = {}
    for kind, state in dict.fromkeys(states):
        name = key(kind, state)
        table.setdefault(name.lower(), _of_keys(name))
        by_state.setdefault(state.lower(), []).append(name)
    for state, names in by_state.items():
        table.setdefault(state, _of_keys(*names))
    for cause in causes:
        table.setdefault(cause, Question(cause=cause))
    return table
