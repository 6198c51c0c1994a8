# SPDX-License-Identifier: MIT
"""Every activation figure against a slow, obvious twin; the sample against the whole tensor."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture import sample
from neuraldbg.capture.statistics import FLAT
from neuraldbg.schema.facts import ActivationStat as A
from neuraldbg.schema.facts import InputStat, ParameterStat


def facts_of(model, steps=1, batch=64, make=None):
    """Train on random data; return the facts and the output of every leaf on the last step."""
    outputs = {}
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            x = torch.randn(batch, 8) if make is None else make()
            h = x
            for name, layer in model.named_children():
                h = layer(h)
                outputs[name] = h.detach().clone()
            optimizer.zero_grad()
            h.pow(2).mean().backward()
            optimizer.step()
            dbg.record_loss(h.pow(2).mean())
    return dbg, outputs


def twin(sampled):
    """The sample's figures in plain numpy, unit by unit."""
    x = sampled.astype(np.float64)
    power = (x**2).mean()
    spread = np.sqrt(((x - x.mean(0)) ** 2).mean() / power)
    rows = [row / np.linalg.norm(row) for row in x if np.linalg.norm(row) > 0]
    pairs = [a @ b for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j]
    values = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    rank = values.sum() ** 2 / (values**2).sum()
    return {
        A.ZERO_SHARE: (x == 0).mean(),
        A.SPREAD: spread,
        A.COSINE: np.mean(pairs),
        A.RANK: rank,
        A.ROW_MAX: x.max(1).mean(),
    }


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh(), nn.Sigmoid(), nn.LeakyReLU()])
def test_layer_figures_equal_their_twins(activation):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 48), activation, nn.Linear(48, 4))
    dbg, outputs = facts_of(model)
    row = dbg.trace.facts.activation[-1]
    for index, info in enumerate(dbg.trace.run.layers):
        full = outputs[info.path]
        assert row[index, A.MEAN] == pytest.approx(full.mean().item(), abs=1e-5)
        assert row[index, A.RMS] == pytest.approx(full.pow(2).mean().sqrt().item(), rel=1e-5)
        assert row[index, A.MIN] == full.min().item()
        assert row[index, A.MAX] == full.max().item()
        assert row[index, A.NONFINITE] == 0
        chosen = sample.plan(tuple(full.shape), tuple(full.stride()), -1)
        expected = twin(sample.take(full, chosen).reshape(chosen.rows, chosen.units).numpy())
        if info.activation == "leaky_relu":
            continue  # sampled before the activation
        for column, value in expected.items():
            assert row[index, column] == pytest.approx(value, rel=2e-3, abs=1e-4), (info, column)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    unit_dim=st.integers(-4, 3),
)
def test_sample_takes_distinct_elements_within_the_tensor(shape, unit_dim):
    tensor = torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape)
    dim = unit_dim % len(shape)
    chosen = sample.plan(tuple(tensor.shape), tuple(tensor.stride()), dim)
    taken = sample.take(tensor, chosen).reshape(-1)
    assert taken.unique().numel() == taken.numel() == chosen.rows * chosen.units
    assert chosen.rows <= sample.ROWS
    assert chosen.units == min(shape[dim], sample.UNITS)
    assert taken.min() >= 0
    assert taken.max() < tensor.numel()


@pytest.mark.parametrize("shape", [(256, 512), (16, 64, 12, 12), (8, 30, 128)])
def test_share_from_the_sample_agrees_with_the_whole_tensor(shape):
    torch.manual_seed(1)
    for share in (0.1, 0.5, 0.9):
        errors = []
        for _ in range(20):
            full = (torch.rand(shape) > share).float()
            dim = 1 if len(shape) == 4 else -1
            chosen = sample.plan(tuple(full.shape), tuple(full.stride()), dim)
            errors.append((sample.take(full, chosen) == 0).float().mean().item() - share)
        assert abs(np.mean(errors)) < 0.02
        assert max(map(abs, errors)) < 0.06


class Poisoned(nn.Module):
    """Puts one NaN into one place of a large tensor, off the sample's grid."""

    def __init__(self, at):
        super().__init__()
        self.body = nn.Linear(8, 4000)
        self.head = nn.Linear(4000, 1)
        self.at, self.calls = at, 0

    def forward(self, x):
        h = self.body(x)
        if self.calls == self.at:
            h = torch.where(torch.arange(h.numel()).view(h.shape) == 1234, float("nan"), h)
        self.calls += 1
        return self.head(h)


def test_one_rare_nan_is_seen_on_its_own_step():
    model = Poisoned(at=37)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with NeuralDbg(model) as dbg:
        for _ in range(40):
            loss = model(torch.randn(64, 8)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    hypotheses = dbg.explain_failure()
    assert hypotheses
    assert hypotheses[0].onset == 37


FUNCTIONS = {
    "relu": F.relu, "relu6": F.relu6, "hardtanh": F.hardtanh, "hardsigmoid": F.hardsigmoid,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "softsign": F.softsign, "softplus": F.softplus,
    "logsigmoid": F.logsigmoid, "gelu": F.gelu, "silu": F.silu, "mish": F.mish,
    "hardswish": F.hardswish, "elu": F.elu, "selu": F.selu,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FLAT))
def test_flat_region_is_where_the_derivative_is_below_one_percent_of_its_peak(name):
    x = torch.linspace(-12, 12, 240_001, dtype=torch.float64, requires_grad=True)
    y = FUNCTIONS[name](x)
    (derivative,) = torch.autograd.grad(y.sum(), x)
    flat = (derivative.abs() < 0.01 * derivative.abs().max()).numpy()
    points, values = x.detach().numpy(), y.detach().numpy()
    out_low, out_high, in_low, in_high = FLAT[name]
    by_input = (points <= in_low) | (points >= in_high)
    # a non-monotonic function has an isolated zero of its derivative that is no flat region
    near_minimum = (
        np.zeros_like(flat)
        if name not in {"gelu", "silu", "mish", "hardswish"}
        else (np.abs(points - points[np.argmin(values)]) < 0.05)
    )
    wrong = (flat != by_input) & ~near_minimum
    assert wrong.mean() < 2e-3, (points[wrong].min(), points[wrong].max())
    if name not in {"gelu", "silu", "mish", "hardswish"}:
        by_output = (values <= out_low) | (values >= out_high)
        assert (flat != by_output).mean() < 2e-3


def test_silent_share_counts_units_that_never_fire():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 1))
    with torch.no_grad():
        model[0].bias[:30] = -1000.0
    dbg, _ = facts_of(model, steps=10)
    silent = dbg.trace.facts.activation[-1, :2, A.SILENT_SHARE]
    assert silent == pytest.approx([0.75, 0.75])


def test_parameter_figures_equal_their_twins():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-8)
    expected = []
    with NeuralDbg(model) as dbg:
        for _ in range(6):
            loss = model(torch.randn(32, 8)).pow(2).mean() * 50
            optimizer.zero_grad()
            loss.backward()
            norms = [p.grad.norm().item() for p in model.parameters()]
            before = [p.detach().clone() for p in model.parameters()]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss)
            moves = [(p.detach() - b) for p, b in zip(model.parameters(), before, strict=True)]
            ratios = []
            for p in model.parameters():
                state = optimizer.state[p]
                root = (state["exp_avg_sq"] / (1 - 0.999 ** state["step"])).sqrt()
                ratios.append((p.grad / root.clamp(min=1e-8)).pow(2).mean().sqrt().item())
            expected.append((norms, [m.pow(2).mean().sqrt().item() for m in moves], ratios))
    table = dbg.trace.facts.parameter
    for step, (norms, moves, ratios) in enumerate(expected):
        assert table[step, :, ParameterStat.GRAD_NORM] == pytest.approx(norms, rel=1e-4)
        assert table[step, :, ParameterStat.UPDATE_RMS] == pytest.approx(moves, rel=1e-3)
        assert table[step, :, ParameterStat.SECOND_MOMENT_RATIO] == pytest.approx(ratios, rel=1e-3)
    clipped = [dbg.trace.facts.ledger[i, 6] for i in range(6)]
    totals = [np.linalg.norm(norms) for norms, _, _ in expected]
    assert dbg.trace.facts.ledger[:, 7] == pytest.approx(totals, rel=1e-4)
    assert clipped == [1.0] * 6


def test_input_figures_equal_their_twins():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4))
    scale = torch.tensor([1.0, 1, 1, 1, 1, 1, 100, 0])
    seen = []

    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return self.inner(x)

    root = Root()
    optimizer = torch.optim.SGD(root.parameters(), lr=1e-6)
    with NeuralDbg(root) as dbg:
        for _ in range(3):
            x = torch.randn(32, 8) * scale
            seen.append(x)
            optimizer.zero_grad()
            loss = root(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    for step, x in enumerate(seen):
        row = dbg.trace.facts.inputs[step, 0]
        assert row[InputStat.MEAN] == pytest.approx(x.mean().item(), rel=1e-4)
        assert row[InputStat.RMS] == pytest.approx(x.pow(2).mean().sqrt().item(), rel=1e-4)
        assert row[InputStat.CONSTANT_SHARE] == pytest.approx(1 / 8)
        deviation = x.std(0, unbiased=False)[:7]
        assert row[InputStat.FEATURE_SPREAD] == pytest.approx(
            (deviation.max() / deviation.min()).item(), rel=1e-3
        )
