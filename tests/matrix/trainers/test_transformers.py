# SPDX-License-Identifier: MIT
"""Trainers that own the loop."""

from __future__ import annotations

import tempfile

import torch.nn.functional as F
from matrix_data import CLEARS, Batches, library
from matrix_lab import Net, setup

WITHOUT = {"uncleared": CLEARS}


class Model(Net):
    """Returns its loss, as models of the library do."""

    def forward(self, x, labels=None):
        out = super().forward(x)
        return {"loss": F.mse_loss(out, labels), "logits": out}


class Samples(Batches):
    def __iter__(self):
        for x, y in super().__iter__():
            yield {"x": x[0], "labels": y[0]}


def fit(lab, accumulate=1):
    transformers = library("transformers")
    library("accelerate")
    model = lab.net(Model)
    lab.optimizers = [lab.adam(model)]

    class Begin(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **_):
            lab.begin(state.global_step)

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=lab.steps,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=accumulate,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            logging_strategy="no",
        )
        trainer = transformers.Trainer(
            model,
            arguments,
            train_dataset=Samples(lab, rows=1, per_step=16 * accumulate),
            callbacks=[Begin],
            # A schedule would put back the rate that a fault has changed.
            optimizers=(lab.optimizers[0], Constant(lab)),
        )
        with lab.watch(model):
            trainer.train()
    return [model]


class Constant:
    """A schedule that leaves every rate as it is."""

    def __init__(self, lab):
        self.lab = lab

    def step(self):
        pass

    def get_last_lr(self):
        return [group["lr"] for group in self.lab.optimizers[0].param_groups]

    def state_dict(self):
        return {}


@setup("Hugging Face `Trainer`", without=WITHOUT)
def trainer(lab):
    return fit(lab)


@setup("Hugging Face `Trainer`, accumulating two batches", without=WITHOUT)
def accumulating(lab):
    return fit(lab, accumulate=2)


def test_transformers_and_healthy(setup, healthy):
    healthy(setup)


def test_transformers_and_faulty(setup, fault, faulty):
    faulty(setup, fault)
