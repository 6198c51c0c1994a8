# SPDX-License-Identifier: MIT
"""An examination leaves nothing behind: weights, gradients, buffers, random state, hooks."""

from __future__ import annotations

import copy
import gc
import random
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as module_globals
from torch.utils.checkpoint import checkpoint

from neuraldbg.capture.microscope import Microscope


class Awkward(nn.Module):
    """Everything a re-run could disturb: dropout, batch norm, counters, caches, clamped weights."""

    def __init__(self, *, use_checkpoint=False):
        super().__init__()
        self.front = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.inner = nn.Linear(8, 8)
        self.back = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 2))
        self.calls, self.history, self.last = 0, [], None
        self.average = torch.zeros(8)
        self.register_buffer("seen", torch.zeros(()))
        self.use_checkpoint = use_checkpoint

    def forward(self, x, *, bad=""):
        self.calls += 1
        self.history.append(self.calls)
        self.seen += 1
        self.front.weight.data.clamp_(-0.4, 0.4)
        x = x.mul_(1.0)
        h = self.drop(self.act(self.norm(self.front(x))))
        self.average.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        if random.random() < 0.5:  # noqa: S311
            h = h + 0.1
        if self.use_checkpoint:
            h = h + checkpoint(self.inner, h, use_reentrant=False)
        self.last = h
        if bad == "forward":
            h = h / (h * 0)
        if bad == "backward":
            h = h + (h * 0).sqrt()
        return self.back(h)


def train(watch, bad, *, use_checkpoint=False, amp=False):
    torch.manual_seed(3)
    random.seed(3)
    model = Awkward(use_checkpoint=use_checkpoint)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    grads = []

    def go():
        for step in range(4):
            x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                out = model(x, bad=bad if step == 2 else "")
            loss = F.cross_entropy(out.float(), y)
            optimizer.zero_grad()
            loss.backward()
            grads.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
            optimizer.step()

    told = watch(model, go)
    return model, grads, torch.get_rng_state(), random.getstate(), told


def bits(tensor):
    return tensor.detach().contiguous().view(torch.uint8 if tensor.dim() else tensor.dtype).clone()


def same(a, b):
    return (
        bool(((a == b) | (a.isnan() & b.isnan())).all())
        if a.is_floating_point()
        else bool((a == b).all())
    )


@pytest.mark.parametrize("bad", ["", "forward", "backward"])
@pytest.mark.parametrize("use_checkpoint", [False, True])
@pytest.mark.parametrize("amp", [False, True])
def test_run_is_bit_equal_with_and_without_examination(drive, bad, use_checkpoint, amp):
    def watched(model, go):
        driver = drive({"": model})
        with driver:
            go()
        return driver.told

    plain, gradients, state, host, _ = train(
        lambda _, go: go(), bad, use_checkpoint=use_checkpoint, amp=amp
    )
    model, watched_gradients, watched_state, watched_host, told = train(
        watched, bad, use_checkpoint=use_checkpoint, amp=amp
    )
    assert bool(told) == bool(bad)
    for (name, a), b in zip(plain.state_dict().items(), model.state_dict().values(), strict=True):
        assert same(a, b), name
    for one, other in zip(gradients, watched_gradients, strict=True):
        assert all(same(a, b) for a, b in zip(one, other, strict=True) if a is not None)
    assert torch.equal(state, watched_state)
    assert host == watched_host
    assert (model.calls, model.history) == (plain.calls, plain.history)
    assert same(model.average, plain.average)


def test_examination_keeps_the_buffer_objects_and_leaves_no_hook(drive):
    torch.manual_seed(0)
    model = Awkward()
    buffers = {name: id(buffer) for name, buffer in model.named_buffers()}
    attributes = {name: set(module.__dict__) for name, module in model.named_modules()}
    driver = drive({"": model})
    with driver:
        model(torch.randn(6, 4), bad="forward").mean().backward()
        kept = model.last
    assert driver.told
    assert model.last is kept
    assert {name: id(buffer) for name, buffer in model.named_buffers()} == buffers
    assert {name: set(module.__dict__) for name, module in model.named_modules()} == attributes
    assert not module_globals._global_forward_hooks
    assert not module_globals._global_forward_pre_hooks
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_examination_does_not_touch_grad(drive):
    model = nn.Linear(4, 4)
    driver = drive({"": model})
    with driver:
        model(torch.randn(8, 4)).mean().backward()
        before = model.weight.grad
        values = before.clone()
        driver.told += driver.scope._guarded(driver.scope._examine_gradients, [])
    assert model.weight.grad is before
    assert torch.equal(before, values)


def test_step_ends_with_no_tensor_alive():
    model = nn.Linear(4, 4)
    scope = Microscope({"": model})
    x = torch.randn(8, 4)
    scope.begin_forward(model, (x,), {})
    out = model(x)
    scope.end_forward(model, out)
    loss = (out.square() + 1).sqrt().sum()
    assert scope.before_backward(loss) == []
    loss.backward()
    dead = weakref.ref(x)
    scope.end_step()
    del x, out, loss
    gc.collect()
    assert dead() is None


def test_output_gradients_are_kept_up_to_a_size():
    model = nn.Linear(4, 4)
    scope = Microscope({"": model})
    x = torch.randn(8, 4)
    scope.begin_forward(model, (x,), {})
    scope.end_forward(model, out := model(x))
    out.sum().backward()
    assert list(scope._forwards[0].gradients) == [0]
    scope._allowance.left = 8
    scope._forwards[0].keep_gradient(1, torch.ones(4))
    assert list(scope._forwards[0].gradients) == [0]


def test_failure_inside_is_contained_and_named(monkeypatch):
    from neuraldbg.capture.microscope import session

    def broken(*_, **__):
        raise ZeroDivisionError

    model = nn.Linear(4, 4)
    scope = Microscope({"": model})
    monkeypatch.setattr(session, "Paths", broken)
    assert scope.before_backward((model(torch.randn(8, 4)) * 0).log().mean()) == []
    assert "ZeroDivisionError" in scope.failure
    assert not scope.is_examining


def test_watched_model_can_be_copied_and_saved(drive, tmp_path):
    model = nn.Linear(4, 4)
    driver = drive({"": model})
    with driver:
        model(torch.randn(8, 4)).mean().backward()
        twin = copy.deepcopy(model.state_dict())
        torch.save(twin, tmp_path / "model.pt")
    assert (tmp_path / "model.pt").stat().st_size


def test_time_limit_ends_the_examination(drive):
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(20)])
    driver = drive({"": model})
    with driver:
        driver.scope._seconds = 0.0
        (model(torch.randn(8, 4)) / torch.zeros(4)).relu().mean().backward()
    assert len(driver.told) == 1
