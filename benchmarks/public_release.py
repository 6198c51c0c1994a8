# SPDX-License-Identifier: MIT
"""The published neuraldbg 1.x under the zoo's programs, read as generously as its calls allow.

Runs under an interpreter that has that release installed, and imports nothing of this repository.
Without its unpublished engine the release names no cause; its answers are its failure events.
They are put into the scorer's words here: the state that an event enters gives the failure type,
the layer's name loses the class that it is prefixed with, an answer repeats only for another type
or layer, and the first to be seen is the most probable.
"""

from __future__ import annotations

from typing import Any, Self

import torch

import neuraldbg

FAILURE_OF = {
    "vanishing": "vanishing_gradients",
    "exploding": "exploding_gradients",
    "dead": "dead_neurons",
    "saturated": "saturated_activations",
    "loss_plateau": "optimizer_instability",
    "loss_spike": "optimizer_instability",
    "diverging": "optimizer_instability",
    "nan_detected": "data_anomaly",
    "inf_detected": "data_anomaly",
    "distribution_shift": "data_anomaly",
    "outlier": "data_anomaly",
}


class Session:
    """Stands between a program and the release: several models as one, steps counted by losses."""

    def __init__(self, model: Any, **_: Any) -> None:
        if isinstance(model, dict):
            model = torch.nn.ModuleDict(model)
        self.inner = neuraldbg.NeuralDbg(model)

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.inner.__exit__(*exception)

    def record_loss(self, value: Any, name: str = "loss") -> None:
        """Pass the main loss on; its documentation counts a step by `step_iteration()`."""
        if name == "loss":
            self.inner.record_loss(float(value))
            self.inner.step_iteration()

    def __getattr__(self, name: str) -> Any:
        """Take calls that the release does not have, and do nothing."""
        return lambda *_, **__: None


def answers(seen: list[Session]) -> list[dict[str, Any]]:
    """Return the failure events of the sessions, one for each failure type and layer."""
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for session in seen:
        names = {
            f"{type(module).__name__}_{name}": name
            for name, module in session.inner.model.named_modules()
        }
        for event in session.inner.get_events():
            failure = FAILURE_OF.get(event.to_state)
            if failure is None:
                continue
            layer = names.get(event.layer_name)
            answer = {
                "failure_type": failure,
                "cause": None,
                "layer": layer,
                "onset": event.step,
                "confidence": round(float(event.confidence), 3),
                "says": f"{event.event_type.value}: {event.from_state} -> {event.to_state}",
            }
            found.setdefault((failure, layer), answer)
    return sorted(found.values(), key=lambda answer: answer["onset"])[:20]
