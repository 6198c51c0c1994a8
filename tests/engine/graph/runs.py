# SPDX-License-Identifier: MIT
"""Traces of runs made by hand, seen by the built-in detectors."""

from __future__ import annotations

from neuraldbg.detectors import neuraldbg_detectors
from neuraldbg.settings import Settings
from neuraldbg.testing import steps_of
from neuraldbg.trace import TraceWriter


def watched(steps):
    """Return the trace of facts, with the events that the built-in detectors make of them."""
    steps = list(steps)
    settings = Settings()
    writer = TraceWriter(None, steps[0].run, settings)
    detectors = [cls(steps[0].run, settings) for cls in neuraldbg_detectors()]
    for facts in steps:
        writer.write_step(facts)
        for detector in detectors:
            for event in detector.on_step(facts):
                writer.write_event(event)
    for detector in detectors:
        for event in detector.on_finish():
            writer.write_event(event)
    writer.finish()
    return writer.as_trace()


def watched_run(name):
    """Return the trace of a named run of the kit, with its events."""
    return watched(steps_of(name))
