# SPDX-License-Identifier: MIT
"""Trained weights are told from fresh ones by what initialisations never leave behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neuraldbg.capture.pretrained import is_trained, pretrained


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv1d(2, 8, 3), nn.BatchNorm1d(8), nn.Flatten(), nn.Linear(48, 16), nn.LayerNorm(16)
    )


def custom(model):
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d):
            nn.init.xavier_normal_(module.weight)
            nn.init.constant_(module.bias, 2.0)
    return model


@pytest.mark.parametrize("make", [net, lambda: custom(net())])
def test_fresh_weights_are_not_trained_however_initialised(make):
    assert pretrained({"": make()}) == {}


def test_weights_after_some_steps_are_trained():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        (model(torch.randn(16, 2, 8)) - 1).square().mean().backward()
        optimizer.step()
    told = pretrained({"": model})
    assert told["layers"] == 4
    assert told["trained"] >= 3


def test_layers_without_bias_or_scale_cannot_tell():
    assert is_trained(nn.Linear(4, 4, bias=False)) is None
    assert is_trained(nn.LayerNorm(4, elementwise_affine=False)) is None
