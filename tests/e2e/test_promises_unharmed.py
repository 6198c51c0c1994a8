# SPDX-License-Identifier: MIT
"""Promises 1 to 3: the watched run is the run, it costs little, a healthy run is quiet.

Each has a check, and the check with the promise broken on purpose. That weights are bit-equal on
many architectures is in `test_same_run.py` and `test_user_code_*.py`.
"""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
import textwrap
import weakref
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuraldbg.inquiry
import neuraldbg.session
from neuraldbg import FailureType, NeuralDbg
from neuraldbg.capture import (
    closing,
    recorder,
    roots,
    taps,
)
from neuraldbg.schema.hypotheses import CausalHypothesis

N = 20


def tower(depth=2, width=16):
    hidden = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
    for layer in hidden[::2]:
        nn.init.orthogonal_(layer.weight, gain=1.2)
    return nn.Sequential(nn.Linear(6, width), *hidden, nn.Linear(width, 1))


def one_step(model, optimizer, rows=16, spoil=None):
    x = torch.randn(rows, 6)
    y = x[:, :1] - x[:, 1:2]
    if spoil is not None:
        x = spoil(x)
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def training(watch, steps=N):
    model = tower()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with watch(model) as dbg:
        for _ in range(steps):
            dbg.record_loss(one_step(model, optimizer).item())
    return [model]


def after(monkeypatch, owner, name, extra):
    """Make `owner.name` also call `extra` with its arguments."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def both(*args, **kwargs):
        result = original(*args, **kwargs)
        extra(*args, **kwargs)
        return result

    monkeypatch.setattr(owner, name, both)


# -- 1. the watched run is the run -----------------------------------------------------------------


def check_nothing_stays(watch=NeuralDbg):
    model = tower()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks = [len(d) for m in model.modules() for n, d in vars(m).items() if n.endswith("_hooks")]
    alive = []
    with watch(model) as dbg:
        for _ in range(5):
            x = torch.randn(4, 6)
            loss = model(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            alive += [weakref.ref(x), weakref.ref(loss)]
            del x, loss
    gc.collect()
    assert [ref() for ref in alive if ref() is not None] == []
    assert [
        len(d) for m in model.modules() for n, d in vars(m).items() if n.endswith("_hooks")
    ] == hooks
    optimizer_hooks = [d for n, d in vars(optimizer).items() if n.endswith("_hooks") and d]
    assert optimizer_hooks == []


def test_training_is_the_same_and_nothing_stays(unharmed):
    unharmed(training, N)
    check_nothing_stays()


def test_a_random_number_drawn_is_noticed(unharmed, monkeypatch):
    after(monkeypatch, roots.RootBegan, "__call__", lambda *_: torch.rand(1))
    with pytest.raises(AssertionError):
        unharmed(training, N)


def test_a_weight_touched_is_noticed(unharmed, monkeypatch):
    def touch(self, optimizer):
        with torch.no_grad():
            optimizer.param_groups[0]["params"][0].view(-1)[0].mul_(1 + 1e-6)

    after(monkeypatch, recorder.Recorder, "step_ended", touch)
    with pytest.raises(AssertionError):
        unharmed(training, N)


def test_a_tensor_kept_is_noticed(monkeypatch):
    kept = []
    after(monkeypatch, roots.RootBegan, "__call__", lambda *args: kept.append(args))
    with pytest.raises(AssertionError):
        check_nothing_stays()


def test_a_hook_left_is_noticed():
    class Forgetful(NeuralDbg):
        def __enter__(self):
            self._models[""].register_forward_hook(lambda *_: None)
            return super().__enter__()

    with pytest.raises(AssertionError):
        check_nothing_stays(Forgetful)


# -- 2. it costs little ----------------------------------------------------------------------------


@pytest.fixture
def _never_thinned(monkeypatch):
    """Whatever the machine does besides, the taps run on every step."""
    monkeypatch.setattr(closing.Budget, "next_step", lambda *_, **__: True)


SYNCS = ("item", "tolist", "numpy", "cpu", "__float__", "__bool__", "__int__", "__index__")
SYNCS_PER_STEP = 12
"""Reads of tensor values on a healthy step of one model with one input and one optimizer on the
CPU, whatever its depth: the loss, the finiteness of inputs and gradients, the reduced tables."""


def count_reads(monkeypatch, depth):
    """Return how many reads of tensor values NeuralDBG makes on each of ten healthy steps."""
    counts = Counter()
    model = tower(depth)
    optimizer = torch.optim.SGD(model.parameters(), lr=3e-2)

    def counted(original, name):
        @functools.wraps(original)
        def read(self, *args, **kwargs):
            counts[name] += 1
            return original(self, *args, **kwargs)

        return read

    with NeuralDbg(model) as dbg:
        for _ in range(60):
            dbg.record_loss(one_step(model, optimizer).item())
        with monkeypatch.context() as patch:
            for name in SYNCS:
                patch.setattr(torch.Tensor, name, counted(getattr(torch.Tensor, name), name))
            for _ in range(10):
                one_step(model, optimizer)
        assert dbg.trace.facts.sampled.all()
    assert dbg.explain_failure() == []
    return sum(counts.values()) / 10, counts


def check_reads(monkeypatch):
    few, names = count_reads(monkeypatch, 2)
    many, _ = count_reads(monkeypatch, 8)
    assert few == many, names
    assert few <= SYNCS_PER_STEP, names


@pytest.mark.usefixtures("_never_thinned")
def test_values_are_read_a_fixed_number_of_times_per_step(monkeypatch):
    check_reads(monkeypatch)


@pytest.mark.usefixtures("_never_thinned")
def test_a_value_read_per_layer_is_noticed(monkeypatch):
    after(monkeypatch, taps.Tap, "__call__", lambda _, module, args, output: output.sum().item())
    with pytest.raises(AssertionError):
        check_reads(monkeypatch)


def count_calls(depth, width):
    """Return the calls of functions of NeuralDBG, and of torch by it, on one healthy step."""
    model = tower(depth, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    own = str(Path(neuraldbg.__file__).parent)
    counts = Counter()

    def profile(frame, event, argument):
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(own):
            counts[event] += 1

    with NeuralDbg(model) as dbg:
        for _ in range(60):
            dbg.record_loss(one_step(model, optimizer).item())
        sys.setprofile(profile)
        try:
            for _ in range(10):
                one_step(model, optimizer)
        finally:
            sys.setprofile(None)
    return sum(counts.values()) / 10


def check_linear_cost():
    small, double, large = count_calls(4, 8), count_calls(8, 8), count_calls(32, 8)
    per_layer = (double - small) / 4
    assert large - double <= 1.1 * per_layer * 24
    assert count_calls(4, 128) == pytest.approx(small, rel=0.05)


@pytest.mark.usefixtures("_never_thinned")
def test_work_per_step_grows_with_layers_and_with_nothing_else():
    check_linear_cost()


@pytest.mark.usefixtures("_never_thinned")
def test_work_per_pair_of_layers_is_noticed(monkeypatch):
    def quadratic(tap, *rest):
        for _ in range(len(seen)):
            tick()

    seen, tick = set(), own_function()
    original = taps.Tap.__init__

    def registering(self, *args, **kwargs):
        original(self, *args, **kwargs)
        seen.add(id(self))

    monkeypatch.setattr(taps.Tap, "__init__", registering)
    after(monkeypatch, taps.Tap, "__call__", quadratic)
    with pytest.raises(AssertionError):
        check_linear_cost()


def own_function():
    """Return a function that counts as one of NeuralDBG's own."""
    code = compile("def tick():\n    pass\n", neuraldbg.__file__, "exec")
    names = {}
    exec(code, names)  # noqa: S102 - a stand-in with the file name of the product
    return names["tick"]


MEMORY = """
    import gc, sys
    import psutil, torch
    from torch import nn
    from neuraldbg import NeuralDbg

    kept, original = [], NeuralDbg.record_loss

    def leaking(self, *args):
        kept.append([bytearray(5_000), []])
        return original(self, *args)

    if sys.argv[1] == "leak":
        NeuralDbg.record_loss = leaking
    torch.set_num_threads(1)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    process, sizes = psutil.Process(), []
    with NeuralDbg(model) as dbg:
        for step in range(3_001):
            loss = model(torch.randn(2, 6)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            if step in (1_500, 3_000):
                assert dbg.trace.step_count == step  # hands steps on that are held back
                gc.collect()
                sizes += [process.memory_info().rss, len(gc.get_objects())]
    assert dbg.trace.step_count == 3_001
    print(sizes[2] - sizes[0], sizes[3] - sizes[1])
"""


def check_memory(folder, mode):
    """Compare resident memory and live objects of a process after 1,500 and 3,000 steps."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEMORY), mode],
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=100,
        check=True,
    )
    size_bytes, objects = map(int, done.stdout.split())
    assert size_bytes < 3_000_000
    assert objects < 1_000


@pytest.mark.slow
def test_memory_does_not_grow_with_steps(tmp_path):
    check_memory(tmp_path, "plain")


@pytest.mark.slow
def test_memory_that_grows_is_noticed(tmp_path):
    with pytest.raises(AssertionError):
        check_memory(tmp_path, "leak")


# -- 3. a healthy run is quiet ---------------------------------------------------------------------


def test_a_false_alarm_is_noticed(unharmed, monkeypatch):
    wolf = CausalHypothesis(
        failure_type=FailureType.DEAD_NEURONS, cause="unknown", confidence=0.5, description="wolf"
    )
    monkeypatch.setenv("NEURALDBG_DISABLE_PLUGINS", "engine")
    monkeypatch.setattr(neuraldbg.inquiry, "reason_heuristically", lambda trace: [wolf])
    with pytest.raises(AssertionError):
        unharmed(training, N)


def test_a_healthy_run_says_so(unharmed):
    dbg = unharmed(training, N)
    assert dbg.explain_failure() == dbg.get_root_causes() == dbg.detect_coupled_failures() == []
    assert "no failure found" in dbg.summary()
    assert "no failure found" in repr(dbg)
