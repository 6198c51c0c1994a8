# SPDX-License-Identifier: MIT
"""Compiled models."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch._inductor.config
import torch.nn.functional as F
from matrix_lab import WIDTH, Lab, Net, run, setup
from torch import nn

# Torch's own, where a block is compiled that takes what another one gave.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf",
    "ignore:`torch.jit.script_method` is deprecated",
)

SAME_LOOP = "Left out for its time: the loop is that of the first row, and runs outside the graph"
OUTSIDE = {"rate_jump": SAME_LOOP, "uncleared": SAME_LOOP}
LATE = "compiled and called before the session opened"
UNSEEN = (
    "Activations are not seen in code that was compiled before the session, and the run says so"
)

UNHEARD = "A layer without a gradient is accused only where it is seen to run, and here none is"
NO_PROOF = "No gradient reaches the blocks, so that nothing is heard of them proves nothing"


def compiled(subject, **options):
    return torch.compile(subject, **{"backend": "eager", "fullgraph": True} | options)


@setup("`torch.compile(model, fullgraph=True)` before the session")
def whole_model(lab):
    model = lab.net()
    call = compiled(model)
    return lab.train(model, watched=call, call=call)


@setup("`torch.compile(model)` with AOT autograd", without=OUTSIDE)
def whole_model_aot(lab):
    model = lab.net()
    call = compiled(model, backend="aot_eager")
    return lab.train(model, watched=call, call=call)


@setup(
    "`torch.compile(model)` with inductor, the default backend",
    without=OUTSIDE | {"detached": SAME_LOOP},
    is_slow=True,
)
def whole_model_inductor(lab):
    model = lab.net()
    call = compiled(model, backend="inductor")
    with torch._inductor.config.patch(compile_threads=1):  # in this process, which the guards see
        return lab.train(model, watched=call, call=call)


@setup("`torch.compile(model)` inside the session", without=OUTSIDE)
def inside_the_session(lab):
    return lab.train(model := lab.net(), entered=lambda _: compiled(model))


@setup("`model.compile()` in place", without=OUTSIDE)
def in_place(lab):
    model = lab.net()
    model.compile(backend="eager", fullgraph=True)
    return lab.train(model)


@setup("`model.compile()` in place, inside the session", without=OUTSIDE)
def in_place_inside_the_session(lab):
    model = lab.net()
    return lab.train(model, entered=lambda _: model.compile(backend="eager", fullgraph=True))


@setup("the forward method compiled", without=OUTSIDE)
def forward_method(lab):
    model = lab.net()
    model.forward = compiled(model.forward)
    return lab.train(model)


@setup("a compiled function that calls the model", without=OUTSIDE)
def function_around(lab):
    model = lab.net()

    def predict(x):
        return model(x)

    return lab.train(model, call=compiled(predict))


class Block(nn.Module):
    """One of twelve equal ones."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + 0.1 * torch.tanh(self.mix(self.norm(x)))


class Tower(Net):
    """Twelve equal blocks between the stem and the middle."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(24) for _ in range(12))

    def forward(self, x):
        x = self.rise(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(self.bend(self.middle(x)))


@setup("twelve equal blocks compiled one by one, within the recompile limit", without=OUTSIDE)
def twelve_blocks(lab):
    model = lab.net(Tower)
    for block in model.blocks:
        block.compile(backend="eager", fullgraph=True)
    return lab.train(model)


@setup("batches of every size, `dynamic=True`", without=OUTSIDE)
def dynamic_shapes(lab):
    model = lab.net()
    call = compiled(model, dynamic=True)

    def learn():
        x, y = lab.batch(8 + lab.step % 7)
        return lab.update(F.mse_loss(call(x), y))

    return lab.train(model, watched=call, learn=learn)


@setup("with `autocast` and `GradScaler`", without=OUTSIDE)
def scaled(lab):
    model = lab.net()
    call, optimizer = compiled(model), lab.adam()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def learn():
        x, y = lab.batch()
        with torch.autocast("cpu", dtype=torch.float16):
            out = call(x)
        loss = F.mse_loss(out.float(), y)
        lab.clear()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return lab.train(model, watched=call, optimizers=[optimizer], learn=learn)


@setup(
    "compiled and called before the session",
    without={"dead_relu": UNSEEN, "detached": UNHEARD},
    warnings=(f"the model was {LATE}",),
)
def called_before(lab):
    model = lab.net()
    call = compiled(model)
    call(torch.zeros(16, WIDTH)).sum().backward()
    model.zero_grad()
    return lab.train(model, watched=call, call=call)


@setup(
    "blocks compiled and called before the session",
    without=OUTSIDE | {"detached": NO_PROOF},
    warnings=(f"'blocks.0', 'blocks.1', 'blocks.2', 'blocks.3' and 8 more were {LATE}",),
)
def blocks_called_before(lab):
    model = lab.net(Tower)
    for block in model.blocks:
        block.compile(backend="eager", fullgraph=True)
    model(torch.zeros(16, WIDTH)).sum().backward()
    model.zero_grad()
    return lab.train(model)


def test_compiled_and_healthy(setup, healthy):
    healthy(setup)


def test_compiled_and_faulty(setup, fault, faulty):
    faulty(setup, fault)


def test_twelve_equal_blocks_share_two_graphs():
    lab = Lab()
    run(twelve_blocks, lab)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_compiled_code_works_after_the_session_and_holds_nothing_of_it():
    lab = Lab()
    model = lab.net()
    call = compiled(model)
    lab.train(model, watched=call, call=call)
    x = torch.randn(16, WIDTH)
    assert torch.equal(call(x), model(x))
    session = weakref.ref(lab.sessions.pop())
    optimizer = lab.adam()
    before = model.stem.weight.detach().clone()
    call(x).sum().backward()
    optimizer.step()
    assert not torch.equal(before, model.stem.weight)
    gc.collect()
    assert session() is None
