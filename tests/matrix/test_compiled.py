# SPDX-License-Identifier: MIT
"""Compiled models."""

from __future__ import annotations

import torch
from matrix_lab import setup


@setup("`torch.compile(model, fullgraph=True)` before the session")
def whole_model(lab):
    model = lab.net()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    return lab.train(model, watched=compiled, call=compiled)


def test_compiled_and_healthy(setup, healthy):
    healthy(setup)


def test_compiled_and_faulty(setup, fault, faulty):
    faulty(setup, fault)
