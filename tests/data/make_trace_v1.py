# SPDX-License-Identifier: MIT
"""Make trace_v1.ndbg, which every later version must load. Run once per schema version."""

from __future__ import annotations

from pathlib import Path

from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import Observation
from neuraldbg.settings import Settings
from neuraldbg.testing import make_facts, make_run
from neuraldbg.trace import TraceWriter


def main() -> None:
    """Write 1,300 steps with an event, an observation, a loss and a metric."""
    run = make_run("fc1", created="2026-01-01T00:00:00+00:00")
    writer = TraceWriter(Path(__file__).with_name("trace_v1.ndbg"), run, Settings())
    seen = Observation(
        "frozen_parameters", 0, "fc1", {"share": 0.5}, {"cause": "frozen_by_mistake"}
    )
    for step in range(1300):
        writer.write_step(
            make_facts(
                run,
                step,
                loss=0.5 ** min(step, 30),
                metrics={"accuracy": step / 1300},
                observations=[seen] if step == 0 else [],
            )
        )
        if step == 1003:
            event = SemanticEvent(
                event_type="gradient_health_transition",
                layer="fc1",
                step=1000,
                step_range=(999, 1000),
                from_state="healthy",
                to_state="exploding",
                confidence=0.75,
                evidence={"ratio": 4.5, "unit": "made up"},
                detector="exploding_gradient",
            )
            writer.write_event(event)
    writer.finish(RuntimeError("made up"))


if __name__ == "__main__":
    main()
