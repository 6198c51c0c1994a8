# SPDX-License-Identifier: MIT
"""Draw all weights a thousand times too small."""

import torch

FAILURES = ["vanishing_gradients", "optimizer_instability"]
CAUSES = ["init_too_small"]


def before(run):
    layers = run.weighted()
    with torch.no_grad():
        for _, module in layers:
            module.weight.mul_(1e-3 / run.severity)
    return {"layers": [name for name, _ in layers], "onset": [0, 0]}
