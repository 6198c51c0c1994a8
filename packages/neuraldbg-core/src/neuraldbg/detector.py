# SPDX-License-Identifier: MIT
"""The contract of detectors: facts of a step in, semantic events out."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.vocabulary import EventType
    from neuraldbg.settings import Settings


@runtime_checkable
class Detector(Protocol):
    """Turns `StepFacts` into events; runs live and, unchanged, over a recorded trace.

    One instance lives per run. It sees every step once, in order. It must not import torch, keep
    facts, or block: per step it has some tens of microseconds.
    """

    name: ClassVar[str]
    """Unique, lower_snake_case."""
    event_types: ClassVar[frozenset[EventType]]
    """Types it may emit; anything else is refused as a plugin failure."""

    def __init__(self, run: RunInfo, settings: Settings) -> None:
        """Start a run. `facts.run` is newer than `run`: inputs and optimizers appear as used."""
        ...

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Judge one finished step. Called once per step, in order.

        A detector that is to keep up with steps of less than a millisecond can also have a method
        `absorb(steps: ThinnedSteps) -> bool`. It is then shown steps on which no tap ran in bulk:
        it takes them and returns True where it has no event to make of them, else it returns False,
        as it was before, and is shown them one by one.
        """
        ...

    def on_finish(self) -> Iterable[SemanticEvent]:
        """Say what only the whole run shows. Called once, after the last step."""
        ...
