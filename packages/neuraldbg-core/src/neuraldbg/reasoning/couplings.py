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
    ): "the gradient passed from one to the other",
}


def couplings(view: CaseView, window: int) -> list[Coupling]:
    """Return, for each failure event, the nearest earlier one that can have led to it.

    Linear in the number of events: each looks back over the latest event of every layer that feeds
    it (or that it feeds, for gradients), never over all pairs. Events that are mere information do
    not count, and a run without hypotheses has none.
    """
    flow = view.flow
    recent: dict[tuple[str, str | None], SemanticEvent] = {}
    found: list[Coupling] = []
    for event in sorted(view.trace.events, key=lambda e: (e.step, e.id)):
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
        recent[str(event.event_type), event.layer] = event
    return found


def _trigger(
    flow: Flow,
    recent: dict[tuple[str, str | None], SemanticEvent],
    event: SemanticEvent,
    window: int,
) -> SemanticEvent | None:
    best = None
    for (kind, layer), earlier in recent.items():
        if not 0 <= event.step - earlier.step <= window or earlier.id == event.id:
            continue
        if (kind, str(event.event_type)) not in MECHANISMS or not _can_reach(
            flow, kind, layer, event
        ):
            continue
        if best is None or (earlier.step, earlier.confidence) > (best.step, best.confidence):
            best = earlier
    return best


def _can_reach(flow: Flow, kind: str, layer: str | None, event: SemanticEvent) -> bool:
    """Whether what happened at `layer` can lead to `event`: along data, or back along gradients."""
    if layer is None or event.layer is None or layer == event.layer:
        return True
    forward = flow.is_upstream(layer, event.layer)
    if str(event.event_type) == "gradient_health_transition":
        return forward or flow.is_upstream(event.layer, layer)
    return forward or kind == "gradient_health_transition"
