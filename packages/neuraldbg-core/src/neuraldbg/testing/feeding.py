# SPDX-License-Identifier: MIT
"""Running one detector over facts, as the host of a live run does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.hookspecs import hookimpl
from neuraldbg.plugins import DetectorRunner, PluginHost
from neuraldbg.schema.run import RunInfo
from neuraldbg.settings import Settings
from neuraldbg.trace import Trace, step_facts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.detector import Detector
    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts


class _Only:
    """A plugin with one detector."""

    def __init__(self, detector: type[Detector]) -> None:
        self._detector = detector

    @hookimpl
    def neuraldbg_detectors(self) -> list[type[Detector]]:
        """Return that detector."""
        return [self._detector]


def feed(
    detector: type[Detector],
    steps: Iterable[StepFacts],
    *,
    settings: Settings | None = None,
    run: RunInfo | None = None,
) -> list[SemanticEvent]:
    """Run a detector over steps and then to its end.

    Args:
        detector: The class.
        steps: Facts in order, as `make_facts` makes them.
        settings: Of the session; None: the defaults.
        run: What the detector is made with; None: `run` of the first step.

    Returns:
        Its events, collapsed as in a run, in order of their steps.

    Raises:
        PluginError: The detector failed, or returned what it may not.
    """
    found: dict[str, SemanticEvent] = {}
    runner: DetectorRunner | None = None
    for facts in steps:
        if runner is None:
            runner = _runner(detector, run or facts.run, settings)
        found |= {event.id: event for event in runner.on_step(facts)}
    if runner is None:
        nothing = RunInfo(neuraldbg_version="", torch_version="")
        runner = _runner(detector, run or nothing, settings)
    found |= {event.id: event for event in runner.on_finish()}
    return sorted(found.values(), key=lambda event: (event.step, event.layer or "", event.id))


def replay(detector: type[Detector], trace: Trace) -> list[SemanticEvent]:
    """Run a detector over a recorded run, with that run's settings.

    Rows that the trace has decimated come as one step each, see `neuraldbg.trace.step_facts`.

    Raises:
        PluginError: The detector failed, or returned what it may not.

    Example:
        >>> from neuraldbg.testing import recorded_run
        >>> from neuraldbg.detectors.numerical_error import NumericalError
        >>> replay(NumericalError, recorded_run("healthy"))
        []
    """
    return feed(detector, step_facts(trace), settings=trace.settings, run=trace.run)


def _runner(detector: type[Detector], run: RunInfo, settings: Settings | None) -> DetectorRunner:
    plugins = {"tested": _Only(detector)}
    host = PluginHost(is_strict=True, plugins=plugins, discover=False, disabled="builtin")
    return DetectorRunner(host, run, settings or Settings())
