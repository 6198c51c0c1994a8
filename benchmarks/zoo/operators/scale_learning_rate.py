# SPDX-License-Identifier: MIT
"""Multiply the learning rate by 100: a missing minus in an exponent."""

FAILURES = [
    "optimizer_instability",
    "exploding_gradients",
    "dead_neurons",
    "numerical_error",
    "saturated_activations",
]
CAUSES = ["lr_too_high"]
FACTOR = 100.0


def before(run):
    scale(run, FACTOR * run.severity)
    return {"onset": [0, 30]}


def scale(run, factor):
    for optimizer in run.optimizers():
        for group in optimizer.param_groups:
            for key in {"lr", "initial_lr", "max_lr", "min_lr"} & set(group):
                group[key] *= factor
    for scheduler in run.schedulers():
        scheduler.base_lrs = [factor * lr for lr in scheduler.base_lrs]
