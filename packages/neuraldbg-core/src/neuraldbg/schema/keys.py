# SPDX-License-Identifier: MIT
"""Failure keys: `<family>_<state>`, the names under which 1.x users look failures up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.schema.vocabulary import (
    ActivationHealth,
    DataHealth,
    EventType,
    FailureType,
    GradientHealth,
    OptimizerHealth,
)

if TYPE_CHECKING:
    from neuraldbg.schema.events import SemanticEvent

FAMILIES: dict[EventType, str] = {
    EventType.GRADIENT_HEALTH_TRANSITION: "gradient",
    EventType.ACTIVATION_REGIME_SHIFT: "activation",
    EventType.OPTIMIZER_INSTABILITY: "optimizer",
    EventType.DATA_ANOMALY: "data",
    EventType.NUMERICAL_ERROR: "numerical",
    EventType.WIRING_FAULT: "wiring",
    EventType.OBJECTIVE_MISMATCH: "objective",
    EventType.REPRESENTATION_COLLAPSE: "representation",
    EventType.PLUGIN_FAILURE: "plugin",
}
"""First part of a failure key. The values are public API and are never renamed."""

STATES: dict[EventType, tuple[str, ...]] = {
    EventType.GRADIENT_HEALTH_TRANSITION: tuple(GradientHealth),
    EventType.ACTIVATION_REGIME_SHIFT: tuple(ActivationHealth),
    EventType.OPTIMIZER_INSTABILITY: tuple(OptimizerHealth),
    EventType.DATA_ANOMALY: tuple(DataHealth),
}
"""States that have an enum. The other types' states are the identifiers of their detectors."""

SYMPTOMS: dict[FailureType, tuple[str, ...]] = {
    FailureType.VANISHING_GRADIENTS: ("gradient_vanishing",),
    FailureType.EXPLODING_GRADIENTS: ("gradient_exploding",),
    FailureType.DEAD_NEURONS: ("activation_dead",),
    FailureType.SATURATED_ACTIVATIONS: ("activation_saturated",),
    FailureType.OPTIMIZER_INSTABILITY: ("optimizer_*",),
    FailureType.DATA_ANOMALY: ("data_*",),
    FailureType.NUMERICAL_ERROR: ("numerical_*", "gradient_nonfinite"),
    FailureType.TRAINING_WIRING: ("wiring_*", "gradient_absent"),
    FailureType.OBJECTIVE_MISMATCH: ("objective_*",),
    FailureType.REPRESENTATION_COLLAPSE: ("representation_*",),
}
"""Failure keys (fnmatch patterns) that show a failure type."""


def failure_key(event: SemanticEvent) -> str:
    """Return `<family>_<state>` of what the event says, e.g. `gradient_vanishing`.

    The state is the one entered; where the wiring detector calls a state `wiring_x` already, the
    family is not said twice.
    """
    return key(event.event_type, event.to_state)


def key(event_type: EventType, state: str) -> str:
    """Return the failure key of a state within the family of an event type."""
    family = FAMILIES[event_type]
    state = str(state)
    return state if state.startswith(f"{family}_") else f"{family}_{state}"
