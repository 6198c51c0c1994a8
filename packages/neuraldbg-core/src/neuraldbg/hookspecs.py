# SPDX-License-Identifier: MIT
"""What a plugin may implement: every hook, when it is called, and what its return value does.

Importing this module costs pluggy and nothing else, so a plugin's module stays cheap to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pluggy import HookimplMarker, HookspecMarker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

    from neuraldbg.causes import Cause, Vocabulary
    from neuraldbg.detector import Detector
    from neuraldbg.report.reporter import Reporter
    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.hypotheses import CausalHypothesis, Coupling
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.trace import Trace

PROJECT = "neuraldbg"
"""Name of the entry point group, and of pluggy's project."""

hookspec = HookspecMarker(PROJECT)
hookimpl = HookimplMarker(PROJECT)
"""Marks a function of a plugin as the implementation of the hook whose name it bears."""


@hookspec
def neuraldbg_detectors() -> Iterable[type[Detector]]:  # type: ignore[empty-body]
    """Called once per run, before its first step, to collect detector *classes*.

    The host makes one instance of each for the run, calls it on every step, and takes it out when
    it fails. Built-in detectors see a step first, then those of plugins in the order of their
    entry point names. Two detectors of one name: the second is refused.

    Returns:
        Classes that satisfy `neuraldbg.detector.Detector`.
    """


@hookspec
def neuraldbg_causes() -> Iterable[Cause]:  # type: ignore[empty-body]
    """Called once per explanation, to extend the vocabulary of root causes.

    Returns:
        Causes with new ids; ids are never redefined. Users can ask for them at once; that a
        reasoner names them needs a `neuraldbg_reason` that does.
    """


@hookspec
def neuraldbg_reporters() -> Iterable[type[Reporter]]:  # type: ignore[empty-body]
    """Called once per command or session, to collect reporter *classes*.

    Returns:
        Classes that satisfy `neuraldbg.report.reporter.Reporter`, each a format of
        `neuraldbg export`. A built-in format keeps its name.
    """


@hookspec
def neuraldbg_commands(register: Callable[[click.Command], None]) -> None:
    """Called once when the command line starts, also for `--help`: import nothing heavy.

    The return value is ignored.

    Args:
        register: Adds a command to `neuraldbg`. A name that is taken is refused.
    """


@hookspec
def neuraldbg_run_started(run: RunInfo) -> None:
    """Called once per watched run, before its first step; not for a trace that is loaded.

    The return value is ignored. Inputs and optimizers are not known yet.

    Args:
        run: Models, layers and parameters.
    """


@hookspec
def neuraldbg_event(event: SemanticEvent) -> None:
    """Called once per new event of a live run, after it is in the trace, on the training thread.

    The return value is ignored. Repeats that only raise an event's `count` are not passed on.

    Args:
        event: What changed its state.
    """


@hookspec
def neuraldbg_run_finished(trace: Trace) -> None:
    """Called once per watched run, after its last event is in the trace, also after an exception.

    The return value is ignored.

    Args:
        trace: All that was recorded. It stays readable after the call.
    """


@hookspec(firstresult=True)
def neuraldbg_reason(trace: Trace, vocabulary: Vocabulary) -> list[CausalHypothesis] | None:
    """Called when hypotheses are asked for and the trace has grown since; the first result wins.

    Plugins are asked before core's heuristics, the last by entry point name first. The same trace
    must give the same answer on any machine: no clock, no random numbers, no network, no torch.

    Args:
        trace: Of a finished run or a live one.
        vocabulary: Causes that may be named: the built-in ones and those of plugins.

    Returns:
        Hypotheses, most probable first, `[]` for a healthy run; None leaves the answer to the
        next plugin, and at last to core. Anything else counts as a failure of the plugin.
    """


@hookspec(firstresult=True)
def neuraldbg_couplings(trace: Trace, window: int) -> list[Coupling] | None:
    """Called when coupled failures are asked for; the first result wins, as for reasoning.

    Args:
        trace: Of a finished run or a live one.
        window: Largest distance between trigger and consequence, in steps.

    Returns:
        Pairs of failures; None leaves the answer to the next plugin, and at last to core.
    """


@hookspec
def neuraldbg_interventions() -> Iterable[type]:  # type: ignore[empty-body]
    """Called once per replay, to collect intervention *classes*; core alone never calls it.

    Returns:
        Classes of the shape that the installed replay engine documents.
    """
