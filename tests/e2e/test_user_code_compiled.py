# SPDX-License-Identifier: MIT
"""Compiled models: no graph is broken, training is unharmed, and activations are seen."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.schema.facts import ActivationStat

N = 25


def batch(rows=16, width=6):
    x = torch.randn(rows, width)
    return x, x[:, :2].sum(1, keepdim=True) - x[:, 2:3]


def update(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def fit(watch, model, predict, make=batch, lr=1e-2, steps=N, kind=torch.optim.Adam):
    """Train `model` by `predict(model, x)` on a learnable task, and return it."""
    optimizer = kind(model.parameters(), lr=lr)
    with watch(model) as dbg:
        for _ in range(steps):
            x, y = make()
            loss = F.mse_loss(predict(model, x), y)
            update(loss, optimizer)
            dbg.record_loss(loss.item())
    return [model]


def activations(dbg, path):
    """Return `[T, stats]` of one layer."""
    row = [layer.path for layer in dbg.trace.run.layers].index(path)
    return dbg.trace.facts.activation[:, row]


def calls(dbg, path):
    return activations(dbg, path)[:, ActivationStat.CALLS].tolist()


class Compilable(nn.Module):
    """A class of the user's: torch refuses to compile the forward of a bare Sequential in place."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 1)
        self.act = nn.Tanh()

    def forward(self, x):
        return self.c(F.gelu(self.b(self.act(self.a(x)))))


@pytest.fixture(scope="module")
def _compiler():
    """Let the compiler put its own marks on torch before the guards look."""
    torch._dynamo.mutation_guard.install_generation_tagging_init()


def compiled_program(backend, when, how, seen):
    def compiled(model):
        if how == "function":
            return torch.compile(model, backend=backend, fullgraph=True)
        model.compile(backend=backend, fullgraph=True)
        return model

    def program(watch):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        model = Compilable()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        call = compiled(model) if when == "before" else model
        with watch(call) as dbg:
            call = compiled(model) if when == "inside" else call
            for _ in range(12):
                x, y = batch()
                loss = F.mse_loss(call(x), y)
                update(loss, optimizer)
                dbg.record_loss(loss.item())
        counters = torch._dynamo.utils.counters
        seen.append((dict(counters["graph_break"]), counters["stats"]["unique_graphs"]))
        torch._dynamo.reset()
        return [model]

    return program


COMPILED = pytest.mark.parametrize(
    ("backend", "when", "how"),
    [
        (b, w, h)
        for b in ("eager", "aot_eager")
        for w in ("before", "inside")
        for h in ("function", "method")
    ],
)


@COMPILED
@pytest.mark.usefixtures("_compiler")
def test_compiled_model_is_unharmed_and_breaks_no_graph(unharmed, ledger, backend, when, how):
    seen = []
    dbg = unharmed(compiled_program(backend, when, how, seen), 12)
    (plain_breaks, plain_graphs), (breaks, graphs) = seen
    assert breaks == plain_breaks == {}
    assert plain_graphs == 1
    assert graphs <= 3  # the model with and without the hooks of an audit, and one for its inputs
    assert ledger(dbg, "steps") == [1] * 12
    assert ledger(dbg, "forwards") == [1] * 12


@COMPILED
@pytest.mark.usefixtures("_compiler")
def test_taps_see_the_activations_of_a_compiled_model(unharmed, backend, when, how):
    dbg = unharmed(compiled_program(backend, when, how, []), 12)
    for path in ("a", "act", "b", "c"):
        rms = activations(dbg, path)[:, ActivationStat.RMS]
        assert (rms > 0).all(), path


@pytest.mark.usefixtures("_compiler")
def test_layers_compiled_one_by_one(unharmed, ledger):
    def program(watch):
        torch._dynamo.reset()
        model = nn.Sequential(Compilable(), nn.Tanh(), nn.Linear(1, 1))
        model[0].compile(backend="eager")
        out = fit(watch, model, lambda m, x: m(x), steps=12)
        torch._dynamo.reset()
        return out

    dbg = unharmed(program, 12)
    assert calls(dbg, "2") == [1] * 12


@pytest.mark.usefixtures("_compiler")
def test_a_model_compiled_and_called_before_the_session_is_told():
    torch._dynamo.reset()
    model = Compilable()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    fast = torch.compile(model, backend="eager")
    fast(batch()[0])
    with NeuralDbg(fast) as dbg:
        for _ in range(12):
            x, y = batch()
            update(F.mse_loss(fast(x), y), optimizer)
    torch._dynamo.reset()
    assert dbg.trace.step_count == 12
    (warning,) = dbg.trace.run.warnings
    assert "compiled and called before" in warning
