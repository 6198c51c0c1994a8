# SPDX-License-Identifier: MIT
"""Objective mismatch: loss, head and targets do not fit, as the audit of the loss saw it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from neuraldbg.detectors.transitions import observed
from neuraldbg.schema.vocabulary import EventType, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.settings import Settings

KINDS = frozenset(
    {
        "probabilities_into_cross_entropy",
        "probabilities_into_logits_loss",
        "scores_into_probability_loss",
        "broadcast_loss",
        "softmax_dim",
        "target_out_of_range",
        "label_gap",
        "padding_dominates",
        "sum_reduction",
        "constant_term",
        "temperature",
        "sample_leak",
        "future_leak",
        "labels_unrelated",
    }
)
MOST_PER_KIND = 16


class ObjectiveMismatch:
    """Turns what the audit of the loss observed into events."""

    name: ClassVar[str] = "objective_mismatch"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.OBJECTIVE_MISMATCH})

    def __init__(self, run: RunInfo, settings: Settings) -> None:  # noqa: ARG002 - the contract
        """Start a run."""
        self._told: dict[str, int] = {}

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Turn this step's observations into events, at most `MOST_PER_KIND` of a kind."""
        if not facts.observations:
            return ()
        events = []
        for note in facts.observations:
            told = self._told.get(note.kind, 0)
            if note.kind in KINDS and told < MOST_PER_KIND:
                self._told[note.kind] = told + 1
                events.append(
                    observed(
                        self.name,
                        EventType.OBJECTIVE_MISMATCH,
                        ("fitting", note.kind),
                        kind=note.kind,
                        step=note.step,
                        layer=note.layer,
                        evidence={**note.figures, **note.words},
                        severity=Severity.WARNING,
                    )
                )
        return events

    def on_finish(self) -> Iterable[SemanticEvent]:
        """Nothing is left to say."""
        return ()
