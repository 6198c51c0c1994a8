# SPDX-License-Identifier: MIT
"""Put Inf into a few numbers of one batch."""

from operators.poison_nan import STEP, put

FAILURES = ["data_anomaly", "numerical_error"]
CAUSES = ["inf_in_input"]


def before(run):
    put(run, float("inf"))
    return {"onset": [STEP, STEP]}
