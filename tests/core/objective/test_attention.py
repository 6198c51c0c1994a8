# SPDX-License-Identifier: MIT
"""Attention is measured whoever wrote it; gates and heads are none."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg


class ByHand(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.scale = scale

    def forward(self, x):
        logits = self.query(x) @ self.key(x).transpose(1, 2) * self.scale
        return logits.softmax(-1) @ self.value(x)


class Fused(ByHand):
    def forward(self, x):
        q, k, v = (layer(x)[:, None] for layer in (self.query, self.key, self.value))
        return nn.functional.scaled_dot_product_attention(q, k, v, scale=self.scale)[:, 0]


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

    def forward(self, x):
        made = torch.stack([expert(x) for expert in self.experts], -1)
        return (made * self.gate(x).softmax(-1)[..., None, :]).sum(-1)


def figures(block):
    torch.manual_seed(0)
    model = nn.Sequential(block, nn.Linear(8, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(16, 10, 8), torch.randint(0, 5, (16, 10))
    dbg = NeuralDbg(model)
    with dbg:
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    notes = [o for o in dbg.trace.observations if o.kind == "attention"]
    return {o.step: o for o in notes}


@pytest.mark.parametrize("kind", [ByHand, Fused])
def test_entropy_and_certainty_of_attention_are_those_of_its_weights(kind):
    mild, sharp = figures(kind(8**-0.5))[0], figures(kind(1e3))[0]
    assert mild.figures["keys"] == 10
    assert mild.figures["certain"] < 0.4
    assert mild.figures["entropy_share"] > 0.9
    assert sharp.figures["certain"] > 0.99
    assert sharp.figures["entropy_share"] < 0.05
    assert mild.layer in {"0", "0.query", "0.key", "0.value"}


def test_by_hand_and_fused_agree():
    torch.manual_seed(0)
    plain = ByHand(0.5)
    fused = Fused(0.5)
    fused.load_state_dict(plain.state_dict())
    one, other = figures(plain)[0].figures, figures(fused)[0].figures
    for name in ("certain", "entropy_share"):
        assert math.isclose(one[name], other[name], rel_tol=0.1)


def test_gate_over_experts_is_no_attention():
    assert figures(Gate()) == {}
