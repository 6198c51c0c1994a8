# SPDX-License-Identifier: MIT
"""Feed raw numbers instead of standardised ones: everything times 255, in evaluation, too."""

FAILURES = [
    "data_anomaly",
    "saturated_activations",
    "dead_neurons",
    "optimizer_instability",
    "exploding_gradients",
]
CAUSES = ["unnormalized_input"]


def before(run):
    run.on_floats(lambda _, x: 128 + 255 * run.severity * x, evaluation=True)
    return {"onset": [0, 3]}
