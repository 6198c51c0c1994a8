# SPDX-License-Identifier: MIT
"""Trainers that own the loop."""

from __future__ import annotations

import functools
import logging

import torch.nn.functional as F
from matrix_data import CLEARS, Batches, library
from matrix_lab import Net, setup
from torch.utils.data import DataLoader

WITHOUT = {"uncleared": CLEARS}


@functools.cache
def module_class():
    lightning = library("lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(Net, lightning.LightningModule):
        """One class for all ways to train; the laboratory's faults act when a batch begins."""

        lab, accumulate = None, 1

        def on_train_batch_start(self, batch, batch_idx):
            if batch_idx % self.accumulate == 0:
                self.lab.begin(batch_idx // self.accumulate)

        def training_step(self, batch, batch_idx):
            x, y = batch
            if self.automatic_optimization:
                return F.mse_loss(self(x), y)
            loss = F.mse_loss(Net.forward(self, x), y)  # the module itself is never called
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            return loss

        def configure_optimizers(self):
            self.lab.optimizers = [self.lab.adam(self)]
            return self.lab.optimizers[0]

    return Module


def fit(lab, *, is_automatic=True, accumulate=1, **options):
    lightning = library("lightning")
    model = lab.net(module_class())
    model.lab, model.accumulate = lab, accumulate
    model.automatic_optimization = is_automatic
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=lab.steps,
        accumulate_grad_batches=accumulate,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    with lab.watch(model):
        trainer.fit(model, DataLoader(Batches(lab, per_step=accumulate), batch_size=None))
    return [model]


@setup("Lightning, automatic optimization", without=WITHOUT)
def automatic(lab):
    return fit(lab)


@setup("Lightning, accumulating two batches and clipping", without=WITHOUT)
def accumulating(lab):
    return fit(lab, accumulate=2, gradient_clip_val=1.0)


@setup("Lightning, manual optimization", without=WITHOUT)
def manual(lab):
    return fit(lab, is_automatic=False)


def test_lightning_and_healthy(setup, healthy):
    healthy(setup)


def test_lightning_and_faulty(setup, fault, faulty):
    faulty(setup, fault)
