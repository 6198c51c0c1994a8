# SPDX-License-Identifier: MIT
"""Raise weight decay to a value that pulls all weights to zero."""

FAILURES = ["optimizer_instability", "vanishing_gradients"]
CAUSES = ["weight_decay_too_high"]


def before(run):
    for optimizer in run.optimizers():
        for group in optimizer.param_groups:
            decoupled = group.get("decoupled_weight_decay", "AdamW" in type(optimizer).__name__)
            group["weight_decay"] = run.severity * (0.05 / group["lr"] if decoupled else 0.5)
    return {"onset": None}
