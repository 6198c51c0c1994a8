# SPDX-License-Identifier: MIT
"""Feed the same constant instead of the data: a preprocessing step overwrote it."""

import torch

FAILURES = ["data_anomaly", "optimizer_instability"]
CAUSES = ["constant_input"]


def before(run):
    run.on_floats(lambda _, x: torch.full_like(x, 0.5), evaluation=True)
    return {"onset": [0, 1]}
