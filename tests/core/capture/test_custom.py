# SPDX-License-Identifier: MIT
"""A custom backward against finite differences: wrong ones are told, deliberate ones are not."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import Function

from neuraldbg import NeuralDbg


class Unary(Function):
    """Base: saves its argument."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.cos()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return -grad * x.sin()


class Reversed(Unary):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.sin()


class Doubled(Unary):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return -2 * grad * x.sin()


class Round(Unary):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (4 * x).round() / 4

    @staticmethod
    def backward(ctx, grad):
        return grad


class Reversal(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -0.5 * grad


class LeakyClamp(Unary):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-0.5, 0.5)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Noisy(Unary):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * (1 + 0.1 * torch.randn_like(x))

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Product(Function):
    """With the context set up apart, and the gradient of the second factor wrong."""

    @staticmethod
    def forward(x, weight):
        return x @ weight.t()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, -(grad.t() @ x)


class Tanh(Unary):
    """Takes its argument for its result."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (1 - x**2)


class Steeper(Tanh):
    """A surrogate of the right sign throughout."""

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * grad / (1 + x**2)


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.first = nn.Linear(4, 8)
        self.scale = nn.Parameter(torch.randn(8, 8) / 3)
        self.last = nn.Linear(8, 1)

    def forward(self, x):
        h = self.first(x)
        is_product = self.function is Product
        return self.last(
            self.function.apply(h, self.scale) if is_product else self.function.apply(h)
        )


def run(function, steps=6):
    torch.manual_seed(0)
    net = Net(function)
    x = torch.randn(16, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    dbg = NeuralDbg(net)
    with dbg:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (net(x) - x[:, :1]).square().mean()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    notes = [o for o in dbg.trace.observations if o.kind == "custom_gradient"]
    return notes, torch.get_rng_state(), [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize(("function", "ratio"), [(Reversed, -1.0), (Doubled, 2.0), (Product, -1.0)])
def test_wrong_backward_is_told_with_its_function_and_layer(function, ratio):
    notes, _, _ = run(function)
    assert len(notes) == 1
    assert notes[0].words["function"] == function.__name__
    assert notes[0].layer == "first"
    assert notes[0].figures["ratio"] == pytest.approx(ratio, rel=1e-3)
    assert notes[0].figures["argument"] == float(function is Product)


@pytest.mark.parametrize("function", [Unary, Round, Reversal, LeakyClamp, Noisy])
def test_right_deliberate_and_random_functions_are_silent(function):
    assert run(function)[0] == []


@pytest.mark.parametrize("function", [Reversed, Noisy, Product])
def test_the_test_leaves_run_random_state_and_class_as_they_were(function, monkeypatch):
    before = dict(vars(function))
    _, state, weights = run(function)
    assert dict(vars(function)) == before
    monkeypatch.setattr("neuraldbg.capture.custom.MOST", 0)
    _, plain_state, plain_weights = run(function)
    assert torch.equal(state, plain_state)
    assert all(torch.equal(a, b) for a, b in zip(weights, plain_weights, strict=True))


def test_class_is_restored_where_the_run_ends_while_arguments_are_awaited():
    before = vars(Unary)["forward"]
    run(Unary, steps=1)
    assert vars(Unary)["forward"] is before


def regress(function, scale):
    """Fit a wave of one function's results for 300 steps."""
    torch.manual_seed(0)
    first, last = nn.Linear(2, 32), nn.Linear(32, 1)
    net = nn.Sequential(first, Apply(function), last)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    with NeuralDbg(net) as dbg:
        for _ in range(300):
            x = scale * torch.randn(64, 2)
            loss = (net(x) - x[:, :1].sin() - 0.3 * x[:, 1:]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    return dbg


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


def test_a_slope_of_the_wrong_sign_at_many_values_is_told_though_some_is_learned():
    (note,) = (o for o in regress(Tanh, 3.0).trace.observations if o.kind == "custom_gradient")
    assert note.figures["opposed"] > 0.2
    hypotheses = regress(Tanh, 3.0).explain_failure()
    assert [h.cause for h in hypotheses] == ["custom_backward_wrong"]
    assert hypotheses[0].layer == "1"


def test_a_surrogate_slope_that_learns_is_quiet():
    dbg = regress(Steeper, 3.0)
    (note,) = (o for o in dbg.trace.observations if o.kind == "custom_gradient")
    assert note.figures["opposed"] == 0.0
    assert dbg.explain_failure() == []
