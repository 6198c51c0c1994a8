# SPDX-License-Identifier: MIT
"""Every listed operation, forward and backward, inside a module and in the loss, by dtype."""

from __future__ import annotations

import pytest
import torch
from singular_operations import BACKWARD, F32, FORWARD, SAFE, Case
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")


class Apply(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, h):
        return self.make(h)


class Net(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.front = nn.Linear(4, 4)
        self.block = nn.ModuleDict({"op": Apply(make)})
        self.back = nn.Linear(4, 4)

    def forward(self, x):
        h = self.block["op"](torch.tanh(self.front(x)))
        return self.back(h) if h.dim() and h.shape[-1] == 4 else h


def run(drive, case, place, dtype):
    model = (Net(case.make) if place == "module" else nn.Sequential(nn.Linear(4, 4), nn.Tanh())).to(
        dtype
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    healthy = nn.functional.tanh
    with drive({"": model}) as driver:
        for step in range(3):
            x = torch.randn(8, 4, dtype=dtype)
            bad = step == 2
            if place == "module":
                model.block["op"].make = case.make if bad else healthy
                loss = model(x).mean()
            else:
                h = model(x)
                loss = case.make(h).mean() if bad else h.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return driver.told


def variants(cases):
    return [
        pytest.param(case, place, dtype, id=f"{case.name}-{place}-{str(dtype)[6:]}")
        for case in cases
        for place in case.places
        for dtype in case.dtypes
    ]


@pytest.mark.parametrize(("case", "place", "dtype"), variants(FORWARD + BACKWARD))
def test_operation_is_named_with_module_phase_and_argument(drive, case, place, dtype):
    told = run(drive, case, place, dtype)
    assert [one.kind for one in told] == ["nonfinite_birth"]
    found = told[0]
    assert found.step == 2
    assert found.words["operation"] in case.operations
    assert found.words.get("cause") == case.cause or case.cause is None
    if case.cause is None and case.mechanism:
        assert "cause" not in found.words
    assert case.words in found.words["argument"]
    assert case.mechanism in {None, found.words["mechanism"]}
    if place == "module":
        assert found.layer == "block.op"
        assert found.words["phase"] == case.phase
        assert found.words["module_kind"] == "Apply"
    else:
        assert found.layer is None
        assert found.words["phase"] == ("loss" if case.phase == "forward" else "backward")


@pytest.mark.parametrize("place", ["module", "loss"])
@pytest.mark.parametrize(("name", "make"), SAFE, ids=[name for name, _ in SAFE])
def test_what_torch_keeps_finite_is_not_reported(drive, name, make, place):
    assert run(drive, Case(name, make, (), None), place, F32) == []
