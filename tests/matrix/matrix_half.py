# SPDX-License-Identifier: MIT
"""Loops in half precision, for set-ups that train in it, and what is then true of the faults."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from matrix_faults import FAULTS
from torch import nn

AFTERWARDS = {
    # The overflow that the fault leads to in half precision is a failure of its own.
    name: truth._replace(is_leading=False)
    for name, truth in {each.name: each.truth for each in FAULTS}.items()
    if name in {"rate_jump", "uncleared"}
}
BF16, FP16 = torch.bfloat16, torch.float16


def autocast_loss(lab, dtype):
    x, y = lab.batch()
    with torch.autocast("cpu", dtype=dtype):
        out = lab.model(x)
    return F.mse_loss(out.float(), y)


def scaled(lab, scaler, *, unscale=False, optimizer=None):
    """Train with a scaler, unscaling and clipping before its step or not."""
    model = lab.model
    optimizer = optimizer or lab.adam()

    def learn():
        loss = autocast_loss(lab, FP16)
        lab.clear()
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return lab.train(model, optimizers=[optimizer], learn=learn)
