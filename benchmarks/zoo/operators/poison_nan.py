# SPDX-License-Identifier: MIT
"""Put NaN into a few numbers of one batch."""

FAILURES = ["data_anomaly", "numerical_error"]
CAUSES = ["nan_in_input"]
STEP, VALUE = 20, float("nan")


def before(run):
    put(run, VALUE)
    return {"onset": [STEP, STEP]}


def put(run, value):
    def change(step, x):
        if step == STEP:
            x.view(-1)[: max(1, int(3 * run.severity))] = value
        return x

    run.on_floats(change)
