# SPDX-License-Identifier: MIT
"""Draw all weights from a unit normal instead of one scaled by the fan-in."""

from torch import nn

FAILURES = [
    "exploding_gradients",
    "saturated_activations",
    "dead_neurons",
    "optimizer_instability",
    "numerical_error",
]
CAUSES = ["init_too_large"]


def before(run):
    layers = run.weighted()
    for _, module in layers:
        nn.init.normal_(module.weight, std=run.severity)
    return {"layers": [name for name, _ in layers], "onset": [0, 0]}
