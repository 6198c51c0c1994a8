# SPDX-License-Identifier: MIT
"""Set all weights but the last layer's to one number: all units of a layer compute the same."""

from torch import nn

FAILURES = ["optimizer_instability", "training_wiring"]
CAUSES = ["symmetric_init"]


def before(run):
    layers = run.weighted()
    for _, module in layers:
        nn.init.constant_(module.weight, 0.5 / module.weight[0].numel() ** 0.5)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)
    return {"layers": [name for name, _ in layers], "onset": [0, 0]}
