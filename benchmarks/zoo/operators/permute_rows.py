# SPDX-License-Identifier: MIT
"""Shuffle the samples of each batch on their way into the model, but not their targets."""

import torch

FAILURES = ["objective_mismatch", "optimizer_instability"]
CAUSES = ["labels_unrelated_to_inputs"]


def before(run):
    def change(_, args, kwargs):
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        order = torch.randperm(len(tensors[0]))

        def shuffled(x):
            fits = isinstance(x, torch.Tensor) and x.dim() and len(x) == len(order)
            return x[order] if fits else x

        return tuple(map(shuffled, args)), {k: shuffled(x) for k, x in kwargs.items()}

    run.on_batch(change)
    return {"onset": None}
