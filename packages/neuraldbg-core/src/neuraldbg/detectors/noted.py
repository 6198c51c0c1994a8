# SPDX-License-Identifier: MIT
"""What detectors share that only pass on what capture observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from neuraldbg.detectors.transitions import observed
from neuraldbg.schema.vocabulary import EventType, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.thinned import ThinnedSteps
    from neuraldbg.settings import Settings

MOST_PER_KIND = 16
"""Events of one kind at most. Heuristic: a fault in more places than that is told by its first."""


class Noted:
    """Turns observations of some kinds into events; subclasses name the kinds."""

    name: ClassVar[str]
    event_types: ClassVar[frozenset[EventType]]
    kinds: ClassVar[frozenset[str]]
    before: ClassVar[str]
    """State before such a fault."""

    def __init__(self, run: RunInfo, settings: Settings) -> None:  # noqa: ARG002 - the contract
        """Start a run."""
        self._told: dict[str, int] = {}

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Turn this step's observations into events, at most `MOST_PER_KIND` of a kind."""
        if not facts.observations:
            return ()
        (event_type,) = self.event_types
        events = []
        for note in facts.observations:
            told = self._told.get(note.kind, 0)
            if note.kind in self.kinds and told < MOST_PER_KIND:
                self._told[note.kind] = told + 1
                events.append(
                    observed(
                        self.name,
                        event_type,
                        (self.before, note.kind),
                        kind=note.kind,
                        step=note.step,
                        layer=note.layer,
                        evidence={**note.figures, **note.words},
                        severity=Severity.WARNING,
                    )
                )
        return events

    def absorb(self, steps: ThinnedSteps) -> bool:  # noqa: ARG002 - the contract
        """Take steps of which nothing that matters here was measured."""
        return True

    def on_finish(self) -> Iterable[SemanticEvent]:
        """Nothing is left to say."""
        return ()
