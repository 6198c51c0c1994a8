# SPDX-License-Identifier: MIT
"""Whatever is watched at once, and what the user says to a session."""

from __future__ import annotations

from collections import OrderedDict

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


def mlp(width=6, hidden=16, out=1):
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, out))


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


# -- sessions --------------------------------------------------------------------------------------


def test_nested_sessions_on_one_model(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as outer:
            for i in range(N):
                if i == 10:
                    inner = watch(model)
                    inner.__enter__()
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, optimizer)
                outer.record_loss(loss)
                if 10 <= i < 20:
                    inner.record_loss(loss)
                if i == 19:
                    inner.__exit__(None, None, None)
        program.sessions = (outer, inner)
        return [model]

    unharmed(program)
    outer, inner = program.sessions
    assert outer.trace.step_count == N
    assert inner.trace.step_count == 10
    assert calls(outer, "0") == [1] * N
    assert calls(inner, "0") == [1] * 10
    assert outer.loss_history[10:20] == pytest.approx(inner.loss_history)


def test_two_sessions_on_two_models_at_once(unharmed):
    def program(watch):
        a, b = mlp(), mlp(6, 8)
        of_a, of_b = torch.optim.Adam(a.parameters(), 1e-2), torch.optim.SGD(b.parameters(), 0.05)
        with watch(a) as one, watch(b) as two:
            for i in range(N):
                x, y = batch()
                loss = F.mse_loss(a(x), y)
                update(loss, of_a)
                one.record_loss(loss)
                if i % 2:
                    loss = F.mse_loss(b(x), -y)
                    update(loss, of_b)
                    two.record_loss(loss)
        program.sessions = (one, two)
        return [a, b]

    unharmed(program)
    one, two = program.sessions
    assert (one.trace.step_count, two.trace.step_count) == (N, N // 2)
    assert {p.name for p in one.trace.run.parameters} == {
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    }
    assert [o.kind for o in one.trace.run.optimizers] == ["Adam"]
    assert [o.kind for o in two.trace.run.optimizers] == ["SGD"]


def test_one_session_after_another_on_one_model(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        sessions = []
        for _ in range(3):
            with watch(model) as dbg:
                for _ in range(8):
                    x, y = batch()
                    loss = F.mse_loss(model(x), y)
                    update(loss, optimizer)
                    dbg.record_loss(loss)
            sessions.append(dbg)
        program.sessions = sessions
        return [model]

    unharmed(program)
    assert [dbg.trace.step_count for dbg in program.sessions] == [8, 8, 8]


def test_an_unrelated_model_trained_in_the_block(unharmed, ledger):
    def program(watch):
        model, other = mlp(), mlp(6, 64)
        ours = torch.optim.Adam(model.parameters(), 1e-2)
        theirs = torch.optim.SGD(other.parameters(), 1e3)
        with watch(model) as dbg:
            for i in range(N):
                if i % 5 == 4:
                    x, y = batch()
                    theirs.zero_grad()
                    (1e5 * F.mse_loss(other(x), y)).backward()
                    nn.utils.clip_grad_norm_(other.parameters(), 1.0)
                    theirs.step()
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, ours)
                dbg.record_loss(loss)
        return [model]

    dbg = unharmed(program, N)
    assert ledger(dbg, "clips") == [0] * N
    assert len(dbg.trace.run.optimizers) == 1


class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.price, self.unused = nn.Linear(16, 1), nn.Linear(16, 5)

    def forward(self, x, task="price"):
        return getattr(self, task)(self.body(x))


def test_a_model_that_is_only_partly_used(unharmed):
    def program(watch):
        model = Multi()
        parts = [*model.body.parameters(), *model.price.parameters()]
        optimizer = torch.optim.Adam(parts, lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model]

    dbg = unharmed(program, N, is_quiet=False)
    # An unused head may be named, quietly or not, but never with a layer that is used.
    assert {h.layer for h in dbg.explain_failure()} <= {"unused"}


def test_submodules_called_instead_of_the_root(unharmed):
    def predict(model, x):
        return model.price(model.body(x))

    def program(watch):
        model = Multi()
        del model.unused
        return fit(watch, model, predict)

    dbg = unharmed(program, N)
    assert calls(dbg, "price") == [1] * N


def test_a_method_other_than_forward(unharmed):
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy, self.value = mlp(6, 16, 3), mlp(6, 16, 1)

        def evaluate(self, x):
            return self.policy(x), self.value(x)

    def program(watch):
        model = Agent()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                logits, value = model.evaluate(x)
                loss = F.cross_entropy(logits, x[:, :3].argmax(1)) + F.mse_loss(value, y)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model]

    dbg = unharmed(program, N)
    assert calls(dbg, "value.0") == [1] * N


# -- what the user says ----------------------------------------------------------------------------


def test_labels_metrics_and_losses_by_name(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for i in range(N):
                dbg.step = 1000 + 10 * i
                x, y = batch()
                out = model(x)
                fit_loss, size = F.mse_loss(out, y), out.pow(2).mean()
                update(fit_loss + 0.01 * size, optimizer)
                dbg.record_loss(fit_loss.item(), name="fit")
                dbg.record_loss(size, name="size")
                dbg.record_metric("error", (out - y).abs().mean())
        return [model]

    dbg = unharmed(program, N)
    assert dbg.trace.loss.steps.tolist() == [1000 + 10 * i for i in range(N)]
    assert set(dbg.trace.losses) == {"fit", "size"}
    assert len(dbg.trace.metrics["error"]) == N


def test_step_iteration_where_no_optimizer_of_torch_steps(unharmed):
    def program(watch):
        model = mlp()
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                model.zero_grad()
                loss.backward()
                with torch.no_grad():
                    for p in model.parameters():
                        p.sub_(p.grad, alpha=0.05)
                dbg.record_loss(loss)
                dbg.step_iteration()
        return [model]

    unharmed(program, N)


def test_step_iteration_on_top_of_an_optimizer_counts_once(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, optimizer)
                dbg.record_loss(loss)
                dbg.step_iteration()
        return [model]

    unharmed(program, N)


def test_module_outside_the_model(unharmed):
    def program(watch):
        model, criterion = mlp(6, 16, 4), nn.Linear(4, 1)
        optimizer = torch.optim.Adam([*model.parameters(), *criterion.parameters()], lr=1e-2)
        dbg = watch(model)
        dbg.register_composite_hook(criterion)
        with dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(criterion(torch.tanh(model(x))), y)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model, criterion]

    dbg = unharmed(program, N)
    assert "Linear.weight" in {p.name for p in dbg.trace.run.parameters}


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_evaluation_of_another_kind_inside_the_loop(unharmed, ledger, mode):
    def program(watch):
        model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for i in range(N):
                model.train()
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, optimizer)
                dbg.record_loss(loss)
                if i % 5 == 4:
                    model.eval()
                    with getattr(torch, mode)():
                        for _ in range(3):
                            x, y = batch()
                            dbg.record_metric("validation", F.mse_loss(model(100 * x), y))
        return [model]

    dbg = unharmed(program, N)
    assert sum(ledger(dbg, "eval_forwards")) == 15
    assert activations(dbg, "0")[:, ActivationStat.MAX].max() < 50


def test_frozen_parts_thawed_and_added_to_the_optimizer_later(unharmed):
    def program(watch):
        model = nn.Sequential(
            OrderedDict(body=nn.Linear(6, 16), act=nn.Tanh(), head=nn.Linear(16, 1))
        )
        model.body.requires_grad_(False)
        optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for i in range(N):
                if i == 10:
                    model.body.requires_grad_(True)
                    optimizer.add_param_group({"params": model.body.parameters(), "lr": 1e-3})
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model]

    unharmed(program, N)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_is_traced_inside_the_block_as_outside():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    x = torch.randn(4, 3)
    with NeuralDbg(model) as dbg:
        loss = model(x).square().mean()
        loss.backward()
        dbg.record_loss(loss)
        traced = torch.jit.trace(model, x)
    assert torch.equal(traced(x), model(x))


def test_nothing_is_said_of_a_block_without_a_step(caplog):
    with NeuralDbg(nn.Linear(3, 1)) as dbg:
        pass
    assert dbg.explain_failure() == dbg.detect_coupled_failures() == []
    assert not caplog.records
