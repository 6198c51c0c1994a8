# SPDX-License-Identifier: MIT
"""Couplings: a failure that another one follows within a few steps along the data flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.schema.hypotheses import Coupling
from neuraldbg.schema.vocabulary import Severity

if TYPE_CHECKING:
    from neuraldbg.reasoning.flow import Flow
    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.events import SemanticEvent

MOST = 200
"""Couplings on a list."""
MECHANISMS = {
    ("data_anomaly", "activation_regime_shift"): "what entered the model moved its activations",
    ("data_anomaly", "optimizer_instability"): "what entered the model moved the loss",
    ("data_anomaly", "gradient_health_transition"): "what entered the model moved the gradients",
    ("data_anomaly", "numerical_error"): "what entered the model was not finite, or made it so",
    ("activation_regime_shift", "gradient_health_transition"): (
        "activations out of range pass no gradient, or too much"
    ),
    ("activation_regime_shift", "activation_regime_shift"): "outputs of one layer feed the other",
    ("activation_regime_shift", "representation_collapse"): "units that are stuck say one thing",
    ("gradient_health_transition", "optimizer_instability"): "the step followed that gradient",
    ("gradient_health_transition", "activation_regime_shift"): "the step moved the layer's weights",
    ("optimizer_instability", "activation_regime_shift"): "large steps moved the layer's weights",
    ("numerical_error", "gradient_health_transition"): "gradients of what is not finite are not",
    ("numerical_error", "optimizer_instability"): "a loss of what is not finite is not",
    (
        "gradient_health_transition",
        "gradient_health_transition",
    ): "the gradient of the later layer is what the earlier one gets",
}
PHASES = (
    "data_anomaly",
    "activation_regime_shift",
    "representation_collapse",
    "numerical_error",
    "optimizer_instability",
    "gradient_health_transition",
)
"""Order of what happens within a step: data, forward, loss, backward."""


def couplings(view: CaseView, window: int) -> list[Coupling]:
    """Return, for each failure event, the nearest earlier one that can have led to it.

    Linear in the number of events: each looks back over the latest event of every layer that feeds
    it (or that it feeds, for gradients), never over all pairs. Within a step they stand in the
    order in which a step computes: forward along the data flow, then backward against it. Events
    that are mere information do not count, and a run without hypotheses has none.
    """
    flow = view.flow
    recent: dict[tuple[str, str | None], SemanticEvent] = {}
    found: list[Coupling] = []
    for event in sorted(view.trace.events, key=lambda e: _order(flow, e)):
        if event.severity is Severity.INFO:
            continue
        best = _trigger(flow, recent, event, window)
        if best is not None and len(found) < MOST:
            gap = event.step - best.step
            key = str(best.event_type), str(event.event_type)
            found.append(
                Coupling(
                    trigger=best,
                    consequence=event,
                    step_difference=gap,
                    confidence=round(
                        min(best.confidence, event.confidence) * (1 - 0.5 * gap / max(window, 1)), 4
                    ),
                    mechanism=MECHANISMS.get(key, "it came first, and its output leads there"),
                )
            )
        recent.pop((str(event.event_type), event.layer), None)
        recent[str(event.event_type), event.layer] = event
    return found


def _order(flow: Flow, event: SemanticEvent) -> tuple[int, int, int, str]:
    """Return the place of an event in the run: step, phase of the step, place along the signal."""
    kind = str(event.event_type)
    phase = PHASES.index(kind) if kind in PHASES else len(PHASES)
    place = flow.place.get(event.layer or "", 0)
    return event.step, phase, -place if kind == "gradient_health_transition" else place, event.id


def _trigger(
    flow: Flow,
    recent: dict[tuple[str, str | None], SemanticEvent],
    event: SemanticEvent,
    window: int,
) -> SemanticEvent | None:
    """Return the nearest event that can have led to `event`: the latest in order; ties: later."""
    best = None
    for (kind, layer), earlier in recent.items():
        gap = event.step - earlier.step
        if not _gap_of(kind, str(event.event_type)) <= gap <= window or earlier.id == event.id:
            continue
        if (kind, str(event.event_type)) not in MECHANISMS or not _can_reach(flow, layer, event):
            continue
        if best is None or earlier.step >= best.step:
            best = earlier
    return best


def _gap_of(kind: str, consequence: str) -> int:
    """Return the least number of steps between the two: weights move between steps only."""
    moves = kind in {"gradient_health_transition", "optimizer_instability"}
    return 1 if moves and consequence != "gradient_health_transition" else 0


def _can_reach(flow: Flow, layer: str | None, event: SemanticEvent) -> bool:
    """Whether what happened at `layer` can lead to `event`.

    Gradients run from the output to the input: what they meet on their way back shows in layers
    that feed it. All else runs forward: a layer's weights and outputs show in what it feeds.
    """
    if layer is None or event.layer is None or layer == event.layer:
        return True
    if str(event.event_type) == "gradient_health_transition":
        return flow.is_upstream(event.layer, layer)
    return flow.is_upstream(layer, event.layer)
