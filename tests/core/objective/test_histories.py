# SPDX-License-Identifier: MIT
"""States that are cut from step to step, and the sign of a clipped policy surrogate."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Own(nn.Module):
    """A recurrent cell written by hand."""

    def __init__(self):
        super().__init__()
        self.x, self.h = nn.Linear(2, 6), nn.Linear(6, 6)

    def forward(self, x, state):
        state = torch.tanh(self.x(x) + self.h(state[0]))
        return state, state


class Reader(nn.Module):
    def __init__(self, cell, every):
        super().__init__()
        self.cell, self.read, self.every = cell, nn.Linear(6, 1), every

    def forward(self, x):
        state = (x.new_zeros(len(x), 6),) * 2
        for at, now in enumerate(x.unbind(1)):
            if self.every and at % self.every == 0:
                state = tuple(s.detach() for s in state)
            state = self.cell(now, state)
        return self.read(state[0])


@pytest.mark.parametrize("cell", [lambda: nn.LSTMCell(2, 6), Own])
@pytest.mark.parametrize(("every", "is_cut"), [(1, True), (None, False), (8, False)])
def test_cell_whose_state_is_detached_on_each_step_is_named(run_audit, cell, every, is_cut):
    torch.manual_seed(0)
    model = Reader(cell(), every)

    def losses(_step):
        yield F.mse_loss(model(torch.randn(4, 24, 2)), torch.zeros(4, 1)), [model]

    said = run_audit({"": model}, losses)
    assert {o.layer.partition(".")[0] for k, o in said.items() if k == "history_cut"} == (
        {"cell"} if is_cut else set()
    )


@pytest.mark.parametrize(("every", "is_cut"), [(1, True), (None, False), (8, False)])
@pytest.mark.parametrize("losses_per_step", [1, 4])
def test_cell_that_the_loop_itself_calls_is_named_too(run_audit, every, is_cut, losses_per_step):
    torch.manual_seed(0)
    parts = nn.ModuleDict({"cell": nn.GRUCell(2, 6), "read": nn.Linear(6, 1)})

    def losses(_step):
        for _ in range(losses_per_step):
            state = torch.zeros(4, 6)
            for at, now in enumerate(torch.randn(24, 4, 2)):
                state = state.detach() if every and at % every == 0 else state
                state = parts["cell"](now, state)
            yield parts["read"](state).square().mean(), [parts]

    said = run_audit({"": parts}, losses, steps=2)
    assert ("history_cut" in said) is is_cut


def test_layer_called_by_accumulated_forwards_is_not_taken_for_a_recurrence(run_audit):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))

    def losses(_step):
        for _ in range(16):
            yield model(torch.randn(4, 3)).square().mean(), [model]

    assert "history_cut" not in run_audit({"": model}, losses, steps=2)


@pytest.mark.parametrize("larger", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sign_of_a_clipped_surrogate_is_read_from_its_bound(run_audit, larger, sign):
    torch.manual_seed(0)
    model = nn.Linear(3, 4)

    def losses(_step):
        chances = torch.distributions.Categorical(logits=model(torch.randn(8, 3)))
        ratio = (chances.log_prob(torch.randint(0, 4, (8,))) + 1.4).exp()
        gain = torch.randn(8)
        if larger:
            policy = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
        else:
            policy = -torch.min(ratio * gain, ratio.clip(0.8, 1.2) * gain).mean()
        yield sign * policy - 0.01 * chances.entropy().mean(), [model]

    found = run_audit({"": model}, losses).get("negative_term")
    assert (found is not None) == (sign < 0)
    assert found is None or (found.words["loss"], found.figures["confidence"]) == (
        "clipped_surrogate",
        0.9,
    )
