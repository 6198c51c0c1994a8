# SPDX-License-Identifier: MIT
"""Models that change in mid-run."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from matrix_lab import Lab, Net, setup
from torch import nn

from neuraldbg import NeuralDbg

if TYPE_CHECKING:
    from collections.abc import Callable


@setup("every parameter replaced in mid-run (`load_state_dict(assign=True)`), and the optimizer")
def parameters_replaced(lab):
    model = lab.net()
    lab.optimizers = [lab.adam()]

    def learn():
        if lab.step == 10:
            state = {name: value.clone() for name, value in model.state_dict().items()}
            model.load_state_dict(state, assign=True)
            lab.optimizers = [lab.adam()]
        x, y = lab.batch()
        return lab.update(F.mse_loss(model(x), y))

    return lab.train(model, optimizers=lab.optimizers, learn=learn)


def test_replaced_and_healthy(setup, healthy):
    healthy(setup)


def test_replaced_and_faulty(setup, fault, faulty):
    faulty(setup, fault)


def thinned(lab: Lab, change: Callable[[], nn.Module], overhead: float = 0.001) -> Lab:
    """Train long enough for most steps to be thinned, and call `change` at step 150."""
    model, lab.optimizers = lab.model, [lab.adam()]
    with lab.watch(model, overhead=overhead) as dbg:
        for lab.step in range(230):
            if lab.step == 150:
                model = change()
            x, y = lab.batch()
            dbg.record_loss(lab.update(F.mse_loss(model(x), y)))
    return lab


def test_a_model_that_is_made_anew_on_thinned_steps_is_said():
    lab = Lab()
    lab.net()

    def change():
        model = Net()
        lab.optimizers = [lab.adam(model)]
        return model

    (said,) = thinned(lab, change).session.trace.run.warnings
    assert "was the model made anew?" in said
    assert "from step 150 on" in said


def test_parameters_that_are_replaced_on_thinned_steps_are_followed():
    lab = Lab()
    model = lab.net()

    def change():
        model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
        lab.optimizers = [lab.adam()]
        return model

    dbg = thinned(lab, change).session
    assert dbg.trace.last_step == 229
    assert [str(h) for h in dbg.explain_failure()] == []


@pytest.mark.parametrize("is_all", [True, False])
def test_replaced_parameters_that_no_optimizer_holds_are_named(is_all):
    lab = Lab()
    model = lab.net()

    def change():
        state = {k: v.clone() for k, v in model.state_dict().items()}
        if is_all:
            model.load_state_dict(state, assign=True)
        else:
            model.head.weight = nn.Parameter(state["head.weight"])
        return model

    # One gradient of several that is lost shows on a full step alone.
    found = thinned(lab, change, 0.001 if is_all else 1.0).session.explain_failure()[0]
    assert (found.cause, found.layer) == (
        "stale_optimizer_parameters",
        "stem" if is_all else "head",
    )
    assert 149 <= found.onset <= 229


def test_a_copy_made_on_a_thinned_step_has_nothing_of_the_session():
    lab = Lab()
    model = lab.net()
    copies = []

    def change():
        copies.append(copy.deepcopy(model))
        return model

    thinned(lab, change)
    left = {
        name: table
        for module in copies[0].modules()
        for name, table in vars(module).items()
        if "_hooks" in name and table
    }
    assert left == {}


class Adapted(nn.Module):
    """A frozen layer and two factors beside it."""

    def __init__(self, base, *, is_blocked):
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 16, bias=False)
        nn.init.zeros_(self.up.weight)
        if is_blocked:
            nn.init.zeros_(self.down.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def fit(model, optimizer, factor):
    """Make a step towards a multiple of the first input, and return the loss."""
    x = torch.randn(32, 8)
    loss = F.mse_loss(model(x), factor * x[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("is_blocked", [True, False])
def test_factors_that_are_put_in_at_zero_are_named(is_blocked):
    """The optimizer is given them beside the layers that the session knows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with NeuralDbg(model) as dbg:
        for step in range(160):
            if step == 100:
                model[0] = Adapted(model[0], is_blocked=is_blocked)
                optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            dbg.record_loss(fit(model, optimizer, 1 if step < 100 else -1))
    found = [o for o in dbg.trace.observations if o.kind == "zero_factors"]
    assert [o.layer for o in found] == (["0.down", "0.up"] if is_blocked else [])
    if is_blocked:
        hypotheses = {h.cause: h for h in dbg.explain_failure()}
        assert abs(hypotheses["blocked_zero_init"].onset - 100) <= 1


def test_an_optimizer_of_layers_that_came_later_alone_is_said():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with NeuralDbg(model) as dbg:
        for step in range(60):
            if step == 40:
                model.requires_grad_(requires_grad=False)
                model[0] = Adapted(model[0], is_blocked=False)
                optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
            dbg.record_loss(fit(model, optimizer, 1))
    (said,) = (w for w in dbg.trace.run.warnings if "open a new session on the changed" in w)
    assert said.startswith("from step 40 on")
