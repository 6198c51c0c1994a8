# SPDX-License-Identifier: MIT
"""The words of a diagnosis: event types, health states and failure types.

Every member is a string (`StrEnum`), so `str(member)` and comparison with plain strings work.
The values are public API and are never renamed.
"""

from __future__ import annotations

from enum import StrEnum


class EventType(StrEnum):
    """What a `SemanticEvent` speaks about."""

    GRADIENT_HEALTH_TRANSITION = "gradient_health_transition"
    ACTIVATION_REGIME_SHIFT = "activation_regime_shift"
    OPTIMIZER_INSTABILITY = "optimizer_instability"
    DATA_ANOMALY = "data_anomaly"
    NUMERICAL_ERROR = "numerical_error"
    WIRING_FAULT = "wiring_fault"
    OBJECTIVE_MISMATCH = "objective_mismatch"
    REPRESENTATION_COLLAPSE = "representation_collapse"
    PLUGIN_FAILURE = "plugin_failure"


class GradientHealth(StrEnum):
    """State of a layer's gradient, by its L2 norm before clipping.

    The thresholds (1e-6, 1, 1e3) are those of the public 1.x API. They classify; they do not
    accuse: whether a state is a failure is judged against the layer's own history.
    """

    HEALTHY = "healthy"
    VANISHING = "vanishing"
    SATURATED = "saturated"
    EXPLODING = "exploding"
    NONFINITE = "nonfinite"
    ABSENT = "absent"


class ActivationHealth(StrEnum):
    """State of a layer's output."""

    NORMAL = "normal"
    SATURATED = "saturated"
    DEAD = "dead"
    ANOMALOUS = "anomalous"


class OptimizerHealth(StrEnum):
    """State of the loss curve."""

    STABLE = "stable"
    LOSS_PLATEAU = "loss_plateau"
    LOSS_SPIKE = "loss_spike"
    DIVERGING = "diverging"


class DataHealth(StrEnum):
    """State of what enters the model."""

    NORMAL = "normal"
    NAN_DETECTED = "nan_detected"
    INF_DETECTED = "inf_detected"
    DISTRIBUTION_SHIFT = "distribution_shift"
    OUTLIER = "outlier"


class FailureType(StrEnum):
    """The symptom class that a user asks about."""

    VANISHING_GRADIENTS = "vanishing_gradients"
    EXPLODING_GRADIENTS = "exploding_gradients"
    DEAD_NEURONS = "dead_neurons"
    SATURATED_ACTIVATIONS = "saturated_activations"
    OPTIMIZER_INSTABILITY = "optimizer_instability"
    DATA_ANOMALY = "data_anomaly"
    NUMERICAL_ERROR = "numerical_error"
    TRAINING_WIRING = "training_wiring"
    OBJECTIVE_MISMATCH = "objective_mismatch"
    REPRESENTATION_COLLAPSE = "representation_collapse"


class Severity(StrEnum):
    """How much an event matters for the run."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"
