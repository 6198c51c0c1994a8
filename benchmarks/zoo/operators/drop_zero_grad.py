# SPDX-License-Identifier: MIT
"""Never clear the gradients: the line is missing."""

import torch
from torch import nn

FAILURES = ["training_wiring", "optimizer_instability", "exploding_gradients"]
CAUSES = ["missing_zero_grad"]


def inside(run):
    for owner in {torch.optim.Optimizer, nn.Module, *map(type, run.optimizers())}:
        if "zero_grad" in vars(owner):
            run.patch(owner, "zero_grad", lambda *_, **__: None, inside=True)
    return {"onset": [0, 2]}
