# SPDX-License-Identifier: MIT
"""Wiring fault: the loop does not do what it should, as the ledger and the audit saw it."""

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
        "unregistered_module",
        "parameter_not_in_optimizer",
        "foreign_optimizer_parameters",
        "frozen_parameters",
        "gradient_absent",
        "reentrant_checkpoint",
        "identical_rows",
        "zero_factors",
        "fresh_moments",
        "no_optimizer_step",
        "gradients_not_cleared",
        "cleared_before_step",
        "clipped_after_step",
        "clipped_scaled",
        "accumulation_unscaled",
        "eval_mode_in_training",
        "train_mode_in_eval",
        "inplace_skip",
        "detached_term",
    }
)
MOST_PER_KIND = 16


class WiringFault:
    """Turns what capture observed of the training loop into events."""

    name: ClassVar[str] = "wiring_fault"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.WIRING_FAULT})

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
                        EventType.WIRING_FAULT,
                        ("as_written", note.kind),
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
