"""Models that are never called themselves, and losses that nobody records."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.parts import PartBegan
from neuraldbg.schema.facts import InputStat
from neuraldbg.trace import LEDGER_FIELDS


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.decoders = nn.ModuleList([nn.Linear(8, 4)])

    def forward(self, x):
        return self.decoders[0](self.encoder(x))

    def loss(self, x):
        return (self.decoders[0](self.encoder(x)) - x).square().mean()


def train(dbg, model, loss, steps=6, backwards=1):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with dbg:
        for step in range(steps):
            optimizer.zero_grad()
            for _ in range(backwards):
                loss(step, torch.randn(16, 4)).backward()
            optimizer.step()
    return dbg


def count(dbg, field):
    return dbg.trace.facts.ledger[:, LEDGER_FIELDS.index(field)].tolist()


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_data_that_enters_a_part_is_an_input_and_what_parts_pass_on_is_none():
    model = Coder()
    dbg = train(NeuralDbg(model), model, lambda _step, x: model.loss(x))
    assert [(one.name, one.model) for one in dbg.trace.run.inputs] == [("encoder:0", "encoder")]
    rms = dbg.trace.facts.inputs[:, 0, InputStat.RMS]
    assert (abs(rms - 1) < 0.6).all()
    assert count(dbg, "batch_size") == [16] * 6
    assert count(dbg, "forwards") == [1] * 6


def test_parts_of_several_models_carry_the_names_of_their_models():
    models = {"a": Coder(), "b": Coder()}
    whole = nn.ModuleDict(models)
    dbg = train(NeuralDbg(models), whole, lambda _s, x: sum(m.loss(x) for m in models.values()))
    assert [one.name for one in dbg.trace.run.inputs] == ["a.encoder:0", "b.encoder:0"]


def test_a_detached_output_of_one_part_is_no_data_of_another():
    model = Coder()

    def loss(_step, x):
        code = model.encoder(x)
        return model.decoders[0](code.detach()).square().mean() + code.square().mean()

    dbg = train(NeuralDbg(model), model, loss)
    assert [one.name for one in dbg.trace.run.inputs] == ["encoder:0"]


def test_parts_are_not_listened_to_once_the_model_is_called():
    model = Coder()
    seen = []

    def loss(_step, x):
        result = model(x).square().mean()
        before = model.encoder._forward_pre_hooks.values()
        seen.append(sum(isinstance(hook, PartBegan) for hook in before))
        return result

    dbg = train(NeuralDbg(model), model, loss)
    assert [one.name for one in dbg.trace.run.inputs] == [":0"]
    assert seen == [0] * 6
    assert hooks(model) == 0


def test_parts_leave_no_hook_behind_and_copies_are_deaf():
    model = Coder()
    copies = []

    def loss(step, x):
        if step == 2:
            copies.append(copy.deepcopy(model))
            copies[0].loss(x)
        return model.loss(x)

    dbg = train(NeuralDbg(model), model, loss)
    assert count(dbg, "forwards") == [1] * 6
    assert hooks(model) == 0


def test_a_nan_in_the_data_of_a_part_is_named():
    model = Coder()

    def loss(step, x):
        if step == 40:
            x[0, 0] = float("nan")
        return model.loss(x)

    (first, *_) = train(NeuralDbg(model), model, loss, steps=60).explain_failure()
    assert (first.cause, first.onset) == ("nan_in_input", 40)
    assert "model 'encoder'" in first.description


def test_several_losses_through_several_heads_are_no_accumulation():
    model = Coder()
    model.decoders.append(nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        for _ in range(12):
            code = model.encoder(torch.randn(16, 4))
            optimizer.zero_grad()
            model.decoders[0](code).square().mean().backward(retain_graph=True)
            model.decoders[1](code).square().mean().backward()
            optimizer.step()
    assert count(dbg, "forwards") == [1] * 12
    assert not [note for note in dbg.trace.observations if note.kind == "accumulation_unscaled"]


@pytest.mark.parametrize("divisor", [1, 4])
def test_the_unrecorded_loss_of_a_step_is_that_of_the_whole_batch(divisor):
    model = nn.Linear(4, 1)
    dbg = train(
        NeuralDbg(model),
        model,
        lambda _step, x: (model(x) - model(x).detach() + 3.0).mean() / divisor,
        backwards=divisor,
    )
    assert dbg.loss_history == pytest.approx([3.0] * 6)
