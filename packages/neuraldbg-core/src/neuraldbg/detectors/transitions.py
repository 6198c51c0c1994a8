# SPDX-License-Identifier: MIT
"""From per-layer flags to few events: persistence, onset, collapsing of repeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.vocabulary import ActivationHealth, EventType, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from neuraldbg.schema.thinned import ThinnedSteps


MOST_EVENTS = 256
"""Most layers that one kind of transition reports: a run of 1,000 dead layers needs no 1,000."""


@dataclass(frozen=True)
class Kind:
    """One kind of transition that a detector reports."""

    detector: str
    event_type: EventType
    from_state: str
    to_state: str
    persistence: int = 3
    """Consecutive measured steps before it counts; the event's step is the first of them."""


class Transitions:
    """Follows one kind of transition over all layers.

    A layer's first onset makes an event; later bad steps only raise its `count` and `last_step`.
    The event is repeated (same id) when its count doubles and at the end of the run, so events per
    layer grow with the logarithm of the steps.
    """

    def __init__(self, kind: Kind, names: tuple[str | None, ...]) -> None:
        """Start with no layer in the bad state. `names`: row -> layer of the event."""
        self.kind, self.names = kind, names
        self.run = np.zeros(len(names), dtype=np.int64)
        self.first = np.full(len(names), -1, dtype=np.int64)
        self.good = np.full(len(names), -1, dtype=np.int64)
        self.events: dict[int, SemanticEvent] = {}
        self._told: dict[int, int] = {}

    def update(
        self,
        step: int,
        bad: NDArray[np.bool_],
        known: NDArray[np.bool_],
        describe: Callable[[int], tuple[dict[str, float | str], Severity, float]],
    ) -> list[SemanticEvent]:
        """Take one step's flags; return the events to tell.

        Args:
            step: label of the step.
            bad: `[L]`.
            known: `[L]`, False where nothing was measured: the layer keeps its state.
            describe: row -> (evidence, severity, confidence), called for new events only.
        """
        bad = bad & known
        if not bad.any():
            self.run[known] = 0
            self.good[known] = step
            return []
        fresh = bad & (self.run == 0)
        self.first[fresh] = step
        self.run = np.where(known, np.where(bad, self.run + 1, 0), self.run)
        self.good[known & ~bad] = step
        told = []
        for row in np.flatnonzero(bad & (self.run >= self.kind.persistence)):
            event = self._tell(int(row), step, describe)
            if event is not None:
                told.append(event)
        return told

    def absorb(self, steps: NDArray[np.int64], known: NDArray[np.bool_]) -> None:
        """Take several steps, `[T]`, without a bad layer at once. `known`: `[T, L]`."""
        measured = known.any(axis=0)
        last = len(steps) - 1 - known[::-1].argmax(axis=0)
        self.run[measured] = 0
        self.good[measured] = steps[last[measured]]

    def copy(self) -> Transitions:
        """Return one that goes on from here on its own."""
        twin = Transitions(self.kind, self.names)
        twin.run, twin.first, twin.good = self.run.copy(), self.first.copy(), self.good.copy()
        twin.events, twin._told = dict(self.events), dict(self._told)
        return twin

    def _tell(
        self,
        row: int,
        step: int,
        describe: Callable[[int], tuple[dict[str, float | str], Severity, float]],
    ) -> SemanticEvent | None:
        event = self.events.get(row)
        if event is None:
            if len(self.events) >= MOST_EVENTS:
                return None
            evidence, severity, confidence = describe(row)
            first, good = int(self.first[row]), int(self.good[row])
            event = self.events[row] = SemanticEvent(
                event_type=self.kind.event_type,
                layer=self.names[row],
                step=first,
                step_range=(good if 0 <= good < first else first, first),
                from_state=self.kind.from_state,
                to_state=self.kind.to_state,
                severity=severity,
                confidence=confidence,
                evidence=evidence,
                count=self.kind.persistence,
                last_step=step,
                detector=self.kind.detector,
            )
            self._told[row] = event.count
            return event
        event = event.model_copy(update={"count": event.count + 1, "last_step": step})
        self.events[row] = event
        if event.count < 2 * self._told[row]:
            return None
        self._told[row] = event.count
        return event

    def close(self) -> list[SemanticEvent]:
        """Return the events whose count has grown since they were last told."""
        return [e for row, e in self.events.items() if e.count != self._told[row]]


class Follower:
    """A detector's frame: it follows one kind of transition that only full steps can show."""

    def __init__(self, kind: Kind, names: tuple[str | None, ...]) -> None:
        """Start a run. `names`: row -> layer of the event."""
        self.transitions = Transitions(kind, names)

    def absorb(self, steps: ThinnedSteps) -> bool:  # noqa: ARG002 - the contract
        """Take steps of which nothing that matters here was measured."""
        return True

    def on_finish(self) -> Iterable[SemanticEvent]:
        """Bring counts up to date."""
        return self.transitions.close()


def leaves_normal(detector: str, state: ActivationHealth, *, persistence: int = 3) -> Kind:
    """Return the kind of a layer that leaves its normal regime for `state`."""
    shift = EventType.ACTIVATION_REGIME_SHIFT
    return Kind(detector, shift, ActivationHealth.NORMAL.value, state.value, persistence)


def observed(
    detector: str,
    event_type: EventType,
    states: tuple[str, str],
    *,
    kind: str,
    step: int,
    layer: str | None,
    evidence: dict[str, float | str],
    severity: Severity = Severity.CRITICAL,
) -> SemanticEvent:
    """Return the event that tells a one-off observation of capture. `states`: (from, to)."""
    confidence = evidence.get("confidence", 0.9)
    return SemanticEvent(
        event_type=event_type,
        layer=layer,
        step=step,
        step_range=(max(step - 1, 0), step),
        from_state=states[0],
        to_state=states[1],
        severity=severity,
        confidence=min(max(float(confidence), 0.0), 1.0) if _is_number(confidence) else 0.9,
        evidence={"kind": kind, **{k: v for k, v in evidence.items() if k != "confidence"}},
        detector=detector,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and value == value  # noqa: PLR0124 - NaN is no number here
