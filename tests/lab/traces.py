# SPDX-License-Identifier: MIT
"""Traces of runs whose facts are made by hand, as capture or the detectors leave them."""

from __future__ import annotations

import numpy as np

from neuraldbg.detectors import neuraldbg_detectors
from neuraldbg.reasoning import reason
from neuraldbg.schema.run import LayerInfo, LayerRole
from neuraldbg.settings import Settings
from neuraldbg.testing import make_facts, steps_of
from neuraldbg.trace import TraceWriter

STEPS = 120


def facts_of(run, *, loss, count=STEPS, noise=0.02, **changes):
    """Yield the facts of a run; the loss has noise, changes are values or functions of the step."""
    rng = np.random.default_rng(0)
    for step in range(count):
        value = float(loss(step)) * float(np.exp(noise * rng.normal()))
        now = {k: v(step) if callable(v) else v for k, v in changes.items()}
        yield make_facts(run, step, loss=value, **now)


def trace_of(steps, *, events=()):
    """Return the trace of facts, as capture alone leaves it; events are added."""
    steps = list(steps)
    writer = TraceWriter(None, steps[0].run, Settings())
    for facts in steps:
        writer.write_step(facts)
    for event in events:
        writer.write_event(event)
    writer.finish()
    return writer.as_trace()


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


def record(run, *, loss, count=STEPS, **changes):
    """Return the trace of a run of the given facts, as capture alone leaves it."""
    return trace_of(facts_of(run, loss=loss, count=count, **changes))


def causes(trace):
    """Return the causes that core names, most probable first."""
    return [h.cause for h in reason(trace)]


def flat(_step):
    """A loss that stays."""
    return 1.4


def falling(step):
    """A loss that falls."""
    return 2 * 0.95**step + 0.05


def linear(path, order, *parents, **more):
    """Return a linear layer."""
    return LayerInfo(
        path=path, kind="Linear", role=LayerRole.LINEAR, order=order, parents=parents, **more
    )
