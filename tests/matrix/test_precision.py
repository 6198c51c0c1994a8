# SPDX-License-Identifier: MIT
"""Mixed and low precision."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from matrix_lab import setup

BF16 = torch.bfloat16


def autocast_loss(lab, dtype):
    x, y = lab.batch()
    with torch.autocast("cpu", dtype=dtype):
        out = lab.model(x)
    return F.mse_loss(out.float(), y)


@setup("bf16 `autocast`")
def bf16_autocast(lab):
    model = lab.net()
    return lab.train(model, learn=lambda: lab.update(autocast_loss(lab, BF16)))


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
