# SPDX-License-Identifier: MIT
"""What is kept of a plugin that failed, and the event that says so."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from neuraldbg.errors import PluginError
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.vocabulary import EventType, Severity

logger = logging.getLogger("neuraldbg")


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """A plugin, or one of its detectors, that was switched off."""

    plugin: str
    place: str
    """The hook or method that failed; `load` where the plugin did not come so far."""
    error: str
    detector: str | None = None
    """The detector that is off; None: the plugin as a whole."""

    def __str__(self) -> str:
        """Name plugin, place and error, and say what follows."""
        what = f"plugin {self.plugin!r}"
        if self.detector is not None:
            what = f"detector {self.detector!r} of {what}"
        return f"{what} failed in {self.place!r} and is off for this run: {self.error}"

    def as_event(self, step: int) -> SemanticEvent:
        """Return the failure as an event of the run."""
        return SemanticEvent(
            event_type=EventType.PLUGIN_FAILURE,
            step=step,
            step_range=(step, step),
            from_state="on",
            to_state="off",
            severity=Severity.WARNING,
            confidence=1.0,
            evidence={"plugin": self.plugin, "place": self.place, "error": self.error},
            detector=self.detector or self.plugin,
        )


def describe(error: Exception) -> str:
    """Return the start of the `repr` of an exception, whatever its author did."""
    try:
        return repr(error)[:500]
    except Exception:  # noqa: BLE001 - the code of others may raise anything
        return type(error).__name__


class FailureLog:
    """Failures in order. Each is logged once; in strict mode it is raised instead."""

    def __init__(self, *, is_strict: bool) -> None:
        self.is_strict = is_strict
        self.failures: list[PluginFailure] = []

    def add(
        self, plugin: str, place: str, error: Exception, detector: str | None = None
    ) -> PluginFailure:
        """Keep a failure.

        Raises:
            PluginError: The session is strict.
        """
        failure = PluginFailure(plugin, place, describe(error), detector)
        self.failures.append(failure)
        if self.is_strict:
            raise PluginError(str(failure)) from error
        logger.warning(str(failure))
        return failure
