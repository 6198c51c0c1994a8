# SPDX-License-Identifier: MIT
"""Trainers that own the loop."""

from __future__ import annotations

import torch.nn.functional as F
from matrix_data import CLEARS, Batches, library
from matrix_lab import setup

WITHOUT = {"uncleared": CLEARS}


def fit(lab, accumulate=1):
    engine = library("ignite.engine")
    model = lab.net()
    lab.optimizers = [lab.adam(model)]
    trainer = engine.create_supervised_trainer(
        model, lab.optimizers[0], F.mse_loss, gradient_accumulation_steps=accumulate
    )

    @trainer.on(engine.Events.ITERATION_STARTED)
    def begin():
        number = trainer.state.iteration - 1
        if number % accumulate == 0:
            lab.begin(number // accumulate)

    with lab.watch(model):
        trainer.run(
            Batches(lab, per_step=accumulate), max_epochs=1, epoch_length=lab.steps * accumulate
        )
    return [model]


@setup("Ignite", without=WITHOUT)
def supervised(lab):
    return fit(lab)


@setup("Ignite, accumulating two batches", without=WITHOUT)
def accumulating(lab):
    return fit(lab, accumulate=2)


def test_ignite_and_healthy(setup, healthy):
    healthy(setup)


def test_ignite_and_faulty(setup, fault, faulty):
    faulty(setup, fault)
