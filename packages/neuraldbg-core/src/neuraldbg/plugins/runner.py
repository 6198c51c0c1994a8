# SPDX-License-Identifier: MIT
"""Running detectors over steps: guarded, checked, repeats collapsed, numbers bounded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from neuraldbg.detector import Detector
from neuraldbg.errors import PluginError
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.vocabulary import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from neuraldbg.plugins.host import PluginHost
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.thinned import ThinnedSteps
    from neuraldbg.settings import Settings

COLLAPSE_STEPS = 50
"""Heuristic: the same change seen again within this many steps is the same event."""
PER_LAYER = 20
"""Events at most of one detector in one layer. Heuristic: more tell nothing new."""
PER_RUN = 5_000
"""Events at most of one run. Heuristic: about 2 MB of trace."""
PER_CALL = 10_000
"""Events at most that one call may return: a generator without end must not stop training."""
ALONE = 4
"""Steps that are shown one by one where a detector does not take them in bulk."""
SEVERITIES = list(Severity)

Key = tuple[object, ...]


@dataclass(slots=True, eq=False)
class _Running:
    plugin: str
    detector: Detector
    last: dict[Key, SemanticEvent] = field(default_factory=dict)
    """The latest event of each change, as it was last given out."""
    per_layer: Counter[str | None] = field(default_factory=Counter)


class DetectorRunner:
    """One run's detectors. Nothing they raise reaches training.

    A detector that raises, or returns what it may not, is off for the rest of the run, named in
    the log and in an event of type `plugin_failure`. So is a plugin that failed before.

    Args:
        host: Whose detectors are run.
        run: What is known of the run.
        settings: Of the session.
    """

    def __init__(self, host: PluginHost, run: RunInfo, settings: Settings) -> None:
        self._host = host
        self._count = 0
        self._reported = 0
        self._step = 0
        self._told: set[str] = set()
        self.fresh: tuple[SemanticEvent, ...] = ()
        """Events of the last call that no earlier call had returned."""
        self._running: list[_Running] = []
        for plugin, kind in host.owned_detectors():
            try:
                detector = kind(run, settings)
            except PluginError:
                raise
            except Exception as error:  # noqa: BLE001 - the code of others may raise anything
                host.detector_failed(plugin, kind.name, "__init__", error)
            else:
                self._running.append(_Running(plugin, detector))

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the detectors that are on."""
        return tuple(one.detector.name for one in self._running)

    def on_step(self, facts: StepFacts) -> list[SemanticEvent]:
        """Show a step to every detector.

        Returns:
            New events, and earlier ones, by their `id`, that were seen again. A detector raises
            the count of its own event by returning it again, with the same step.
        """
        self._step = facts.step
        return self._ask("on_step", lambda detector: detector.on_step(facts), self._running)

    def on_thinned(self, steps: ThinnedSteps) -> list[SemanticEvent]:
        """Show steps to every detector, in bulk to those that can take it; returns as `on_step`.

        The events are those that showing them one by one would have given, in the same order.
        """
        self.fresh = ()
        found: dict[str, SemanticEvent] = {}
        fresh: tuple[SemanticEvent, ...] = ()
        for asked in self._show(steps, self._running):
            fresh += self.fresh
            found |= {event.id: event for event in asked}
        self._step = int(steps.steps[-1])
        self.fresh = ()
        failures = self._failures()
        self._note_fresh(failures)
        self.fresh = fresh + self.fresh
        return [*found.values(), *failures]

    def _show(self, steps: ThinnedSteps, waiting: list[_Running]) -> Iterator[list[SemanticEvent]]:
        """Show steps to these detectors; yields what each step that was shown alone gave.

        Where one does not take them in bulk it is asked of either half: most often few of the
        steps are to be told.
        """
        waiting = [one for one in waiting if one in self._running]
        waiting = [one for one in waiting if not self._is_absorbed(one, steps)]
        if not waiting:
            return
        if len(steps) > ALONE:
            half = len(steps) // 2
            yield from self._show(steps.part(slice(half)), waiting)
            yield from self._show(steps.part(slice(half, None)), waiting)
            return
        for index in range(len(steps)):
            facts = steps.facts(index)
            self._step = facts.step
            yield self._ask("on_step", lambda detector, f=facts: detector.on_step(f), waiting)  # type: ignore[misc]
            waiting = [one for one in waiting if one in self._running]

    def _is_absorbed(self, running: _Running, steps: ThinnedSteps) -> bool:
        """Whether the detector took the steps in bulk: they could not make an event of its own."""
        absorb = getattr(running.detector, "absorb", None)
        if absorb is None:
            return False
        try:
            return bool(absorb(steps))
        except PluginError:
            raise
        except Exception as error:  # noqa: BLE001 - the code of others may raise anything
            self._running = [one for one in self._running if one is not running]
            self._host.detector_failed(running.plugin, running.detector.name, "absorb", error)
            return True

    def on_finish(self) -> list[SemanticEvent]:
        """Ask every detector what only the whole run shows; returns as `on_step` does."""
        return self._ask("on_finish", lambda detector: detector.on_finish(), self._running)

    def _ask(
        self,
        place: str,
        ask: Callable[[Detector], Iterable[SemanticEvent]],
        asked: list[_Running],
    ) -> list[SemanticEvent]:
        found: dict[str, SemanticEvent] = {}
        failed: list[_Running] = []
        for running in asked:
            try:
                kept = [
                    self._keep(running, event)
                    for event in _checked(running.detector, ask(running.detector))
                ]
            except PluginError:
                raise
            except Exception as error:  # noqa: BLE001 - the code of others may raise anything
                failed.append(running)
                self._host.detector_failed(running.plugin, running.detector.name, place, error)
                continue
            found |= {event.id: event for event in kept if event is not None}
        if failed:
            self._running = [one for one in self._running if one not in failed]
        events = list(found.values()) + self._failures()
        self._note_fresh(events)
        return events

    def _note_fresh(self, events: list[SemanticEvent]) -> None:
        self.fresh = tuple(event for event in events if event.id not in self._told)
        self._told.update(event.id for event in self.fresh)

    def _failures(self) -> list[SemanticEvent]:
        """Return failures that no event has told yet."""
        failures = self._host.failures
        if len(failures) == self._reported:
            return []
        events = [failure.as_event(self._step) for failure in failures[self._reported :]]
        self._reported = len(failures)
        return events

    def _keep(self, running: _Running, event: SemanticEvent) -> SemanticEvent | None:
        """Return the event as it goes into the trace; None where there are too many."""
        key = (event.event_type, event.layer, event.from_state, event.to_state)
        last = running.last.get(key)
        if last is not None and event.step == last.step:
            event = _grown(last, event, max(last.count, event.count))
        elif last is not None and event.step - _end(last) <= COLLAPSE_STEPS:
            event = _grown(last, event, last.count + event.count)
        elif running.per_layer[event.layer] >= PER_LAYER or self._count >= PER_RUN:
            return None
        else:
            running.per_layer[event.layer] += 1
            self._count += 1
            event = self._owned(running, event)
        running.last[key] = event
        return event

    def _owned(self, running: _Running, event: SemanticEvent) -> SemanticEvent:
        """Return a new event with its detector's name, and a note where it is the last one.

        The event is validated again: `model_construct` would have let anything through.
        """
        fields = event.model_dump(exclude={"id"}, warnings=False)
        fields["detector"] = running.detector.name
        if self._count == PER_RUN:
            note = f"the run's event number {PER_RUN}: no further ones are recorded"
            fields["evidence"]["note"] = note
        elif running.per_layer[event.layer] == PER_LAYER:
            note = f"number {PER_LAYER} of this detector here: no further ones are recorded"
            fields["evidence"]["note"] = note
        return SemanticEvent.model_validate(fields)


def _checked(detector: Detector, returned: Iterable[SemanticEvent]) -> list[SemanticEvent]:
    """Return the events that a call of `detector` returned.

    Raises:
        TypeError: It returned something else, or an event of a type that it does not declare.
    """
    if isinstance(returned, (list, tuple)) and not returned:
        return []
    if not hasattr(returned, "__iter__"):
        raise TypeError(f"returned {type(returned).__name__}, not an iterable of events")
    events = list(islice(returned, PER_CALL + 1))
    if len(events) > PER_CALL:
        raise TypeError(f"returned more than {PER_CALL} events at once")
    for event in events:
        if not isinstance(event, SemanticEvent):
            raise TypeError(f"returned an object of type {type(event).__name__}, not an event")
        if event.event_type not in detector.event_types:
            raise TypeError(
                f"returned an event of type {event.event_type!s}, which is not declared"
            )
    return events


def _end(event: SemanticEvent) -> int:
    return event.step if event.last_step is None else event.last_step


def _grown(first: SemanticEvent, event: SemanticEvent, count: int) -> SemanticEvent:
    """Return `first` as it was seen again; severity and confidence only ever rise."""
    return first.model_copy(
        update={
            "count": count,
            "last_step": max(_end(first), _end(event)),
            "severity": max(first.severity, event.severity, key=SEVERITIES.index),
            "confidence": max(first.confidence, event.confidence),
        }
    )
