# SPDX-License-Identifier: MIT
"""Mixed and low precision."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from matrix_half import AFTERWARDS, BF16, autocast_loss, scaled
from matrix_lab import setup


@setup("bf16 `autocast`")
def bf16_autocast(lab):
    model = lab.net()
    return lab.train(model, learn=lambda: lab.update(autocast_loss(lab, BF16)))


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
