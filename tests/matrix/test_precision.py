# SPDX-License-Identifier: MIT
"""Mixed and low precision."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from matrix_faults import FAULTS
from matrix_lab import setup
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


@setup("bf16 `autocast`")
def bf16_autocast(lab):
    model = lab.net()
    return lab.train(model, learn=lambda: lab.update(autocast_loss(lab, BF16)))


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


@setup("fp16 `autocast` with `GradScaler`", truths=AFTERWARDS)
def fp16_scaler(lab):
    lab.net()
    return scaled(lab, torch.amp.GradScaler("cpu", init_scale=2.0**10))


@setup("`GradScaler`, `unscale_` and clipping", truths=AFTERWARDS)
def fp16_scaler_unscaled_and_clipped(lab):
    lab.net()
    return scaled(lab, torch.amp.GradScaler("cpu", init_scale=2.0**10), unscale=True)


@setup("`GradScaler` with a fused optimizer", truths=AFTERWARDS)
def fp16_scaler_fused(lab):
    lab.net()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    return scaled(lab, scaler, optimizer=lab.adam(fused=True))


@setup("`GradScaler` that skips its first steps", truths=AFTERWARDS)
def fp16_scaler_skipping(lab):
    lab.net()
    return scaled(lab, torch.amp.GradScaler("cpu", init_scale=2.0**24))


@setup("weights in bf16")
def bf16_weights(lab):
    model = lab.net().to(BF16)

    def learn():
        x, y = lab.batch()
        return lab.update(F.mse_loss(model(x.to(BF16)).float(), y))

    return lab.train(model, optimizers=[lab.adam(model)], learn=learn)


def test_precision_and_healthy(setup, healthy):
    healthy(setup)


def test_precision_and_faulty(setup, fault, faulty):
    faulty(setup, fault)
