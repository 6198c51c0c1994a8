# SPDX-License-Identifier: MIT
"""Divide the learning rate by 10,000: an exponent too low."""

from operators.scale_learning_rate import scale

FAILURES = ["optimizer_instability"]
CAUSES = ["lr_too_low"]


def before(run):
    scale(run, 1e-4 / run.severity)
    return {"onset": None}
