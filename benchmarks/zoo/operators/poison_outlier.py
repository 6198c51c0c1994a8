# SPDX-License-Identifier: MIT
"""Multiply one batch by 10,000: a unit mixed up in one file."""

FAILURES = ["data_anomaly", "optimizer_instability"]
CAUSES = ["outlier_batch"]
STEP, FACTOR = 20, 1e4


def before(run):
    run.on_floats(lambda step, x: x * FACTOR * run.severity if step == STEP else x)
    return {"onset": [STEP, STEP]}
