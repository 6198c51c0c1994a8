# SPDX-License-Identifier: MIT
"""Models that change in mid-run."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch.nn.functional as F
from matrix_lab import Lab, Net, setup
from torch import nn

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
