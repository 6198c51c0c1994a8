# SPDX-License-Identifier: MIT
"""Trainers that own the loop."""

from __future__ import annotations

import torch.nn.functional as F
from matrix_data import Batches, library
from matrix_lab import setup
from torch.utils.data import DataLoader


def fit(lab, accumulate=1, *, watches_prepared=False, **options):
    accelerate = library("accelerate")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    accelerator = accelerate.Accelerator(
        cpu=True, gradient_accumulation_steps=accumulate, **options
    )
    model = lab.net()
    prepared, optimizer, loader = accelerator.prepare(
        model, lab.adam(model), DataLoader(Batches(lab, per_step=accumulate), batch_size=None)
    )
    lab.optimizers = [optimizer]
    with lab.watch(prepared if watches_prepared else model):
        for number, (x, y) in enumerate(loader):
            if number == lab.steps * accumulate:
                break
            if number % accumulate == 0:
                lab.begin(number // accumulate)
            with accelerator.accumulate(prepared):
                accelerator.backward(F.mse_loss(prepared(x).float(), y))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(prepared.parameters(), 10.0)
                optimizer.step()
                lab.clear()
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    return [model]


@setup("Accelerate")
def plain(lab):
    return fit(lab)


@setup("Accelerate, what `prepare` returned, in bf16")
def prepared(lab):
    return fit(lab, watches_prepared=True, mixed_precision="bf16")


@setup("Accelerate, accumulating two batches")
def accumulating(lab):
    return fit(lab, accumulate=2)


def test_accelerate_and_healthy(setup, healthy):
    healthy(setup)


def test_accelerate_and_faulty(setup, fault, faulty):
    faulty(setup, fault)
