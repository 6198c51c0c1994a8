# SPDX-License-Identifier: MIT
"""Accelerators: figures arrive three steps late (simulated on the CPU)."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from late import late
from matrix_half import AFTERWARDS, scaled
from matrix_lab import setup
from torch import nn

SKIPPING = 2.0**24
"""Loss scale with which the first steps overflow."""


def lagging(program):
    """Read everything three steps late while the program runs."""

    @functools.wraps(program)
    def run(lab):
        with late(3):
            return program(lab)

    return run


@setup("a plain loop")
@lagging
def plain(lab):
    return lab.train(lab.net())


@setup("`zero_grad(set_to_none=False)`, and a learning rate in a tensor")
@lagging
def zeroed(lab):
    model = lab.net()
    rate = torch.tensor(lab.lr)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, foreach=False)

    def learn():
        x, y = lab.batch()
        if lab.fault.clears(lab):
            optimizer.zero_grad(set_to_none=False)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return lab.train(model, optimizers=[optimizer], learn=learn)


@setup("gradient accumulation and clipping")
@lagging
def accumulated(lab):
    model = lab.net()

    def learn():
        lab.clear()
        total = torch.zeros(())
        for _ in range(2):
            x, y = lab.batch()
            loss = F.mse_loss(model(x), y) / 2
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        lab.optimizers[0].step()
        return total

    return lab.train(model, learn=learn)


@setup("`GradScaler` that skips steps, `unscale_` and clipping", truths=AFTERWARDS)
@lagging
def scaled_and_clipped(lab):
    lab.net()
    return scaled(lab, torch.amp.GradScaler("cpu", init_scale=SKIPPING), unscale=True)


@setup("`GradScaler` that skips steps, with a fused optimizer", truths=AFTERWARDS)
@lagging
def scaled_and_fused(lab):
    lab.net()
    scaler = torch.amp.GradScaler("cpu", init_scale=SKIPPING)
    return scaled(lab, scaler, optimizer=lab.adam(fused=True))


@setup("several optimizers over one model")
@lagging
def several_optimizers(lab):
    model = lab.net()
    low = [*model.stem.parameters(), *model.middle.parameters()]
    optimizers = [torch.optim.Adam(low, lr=lab.lr), lab.adam(model.head)]
    return lab.train(model, optimizers=optimizers)


TIME = "Left out for its time: the loop is that of the first row, and runs outside the graph"


@setup(
    "`torch.compile(model)`", without=dict.fromkeys(("rate_jump", "detached", "uncleared"), TIME)
)
@lagging
def compiled(lab):
    model = lab.net()
    call = torch.compile(model, backend="eager", fullgraph=True)
    return lab.train(model, watched=call, call=call)


def test_accelerator_and_healthy(setup, healthy):
    healthy(setup)


def test_accelerator_and_faulty(setup, fault, faulty):
    faulty(setup, fault)
