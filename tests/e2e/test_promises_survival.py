# SPDX-License-Identifier: MIT
"""Promise 4: it never breaks training, and leaves a trace that explains."""

from __future__ import annotations

import contextlib
import functools
import logging
import signal
import subprocess
import sys
import textwrap
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuraldbg.inquiry
import neuraldbg.session
from neuraldbg import NeuralDbg, hookimpl, load_trace
from neuraldbg.capture import (
    audit,
    closing,
    inputs,
    layers,
    ledger,
    microscope,
    recorder,
    statistics,
    taps,
)
from neuraldbg.plugins import DetectorRunner, PluginHost
from neuraldbg.schema.vocabulary import EventType
from neuraldbg.trace import TraceWriter

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


def broken(*_, **__):
    raise ZeroDivisionError("broken on purpose")


class Raising:
    name = "raising"
    event_types = frozenset({EventType.DATA_ANOMALY})

    def __init__(self, run, settings):
        pass

    on_step = on_finish = broken


def with_plugin(monkeypatch, *detectors):
    module = types.ModuleType("hostile")
    module.neuraldbg_detectors = hookimpl(lambda: detectors)
    module.neuraldbg_detectors.__name__ = "neuraldbg_detectors"
    monkeypatch.setattr(
        neuraldbg.session, "PluginHost", functools.partial(PluginHost, plugins={"hostile": module})
    )


class Unwatched(contextlib.AbstractContextManager):
    def __init__(self, model):
        pass

    def __exit__(self, *_):
        return None

    def record_loss(self, value):
        pass


def same_but_for_warnings(program=training):
    """Compare the weights only, and return the session."""
    sessions, weights = [], []

    def watch(model):
        sessions.append(NeuralDbg(model))
        return sessions[-1]

    for kind in (Unwatched, watch):
        torch.manual_seed(3)
        (model,) = program(kind)
        weights.append(model.state_dict())
        state = torch.get_rng_state()
    torch.manual_seed(3)
    program(Unwatched)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    return sessions[0]


def test_a_detector_that_raises_is_named_once_and_survived(monkeypatch, caplog):
    with_plugin(monkeypatch, Raising)
    dbg = same_but_for_warnings()
    assert dbg.trace.step_count == N
    assert len(dbg.host.failures) == 1
    assert "hostile" in str(dbg.host.failures[0])
    assert sum("broken on purpose" in record.getMessage() for record in caplog.records) == 1
    assert [e.event_type for e in dbg.events] == [EventType.PLUGIN_FAILURE]


FRAGILE = [
    (ledger.Ledger, "note_loss"),
    (inputs.InputBoard, "observe"),
    (microscope.Microscope, "begin_forward"),
    (microscope.Microscope, "before_backward"),
    (audit.Audit, "forward_began"),
    (audit.Audit, "forward_ended"),
    (audit.Audit, "before_backward"),
    (closing.ParameterBoard, "before_step"),
    (closing.ParameterBoard, "after_step"),
    (closing.Sentinels, "before_backward"),
    (closing.Sentinels, "at_step"),
    (statistics.Reducer, "reduce"),
    (closing.Budget, "next_step"),
    (TraceWriter, "write_step"),
    (DetectorRunner, "on_step"),
    (DetectorRunner, "on_finish"),
]


@pytest.mark.parametrize(("owner", "name"), FRAGILE, ids=lambda x: getattr(x, "__name__", x))
@pytest.mark.parametrize("from_step", [0, 7])
def test_whatever_fails_inside_training_goes_on(monkeypatch, caplog, owner, name, from_step):
    original, calls = getattr(owner, name), []

    @functools.wraps(original)
    def fails(*args, **kwargs):
        calls.append(name)
        if len(calls) > from_step:
            raise ZeroDivisionError("broken on purpose")
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, fails)
    dbg = same_but_for_warnings()
    failed = len(calls) > from_step
    said = [
        record
        for record in caplog.records
        if "broken on purpose" in record.getMessage() or record.exc_info
    ]
    assert len(said) == failed
    dbg.explain_failure()
    assert dbg.summary()


ENTERING = [
    (layers, "survey"),
    (recorder.Recorder, "attach"),
    (audit.Audit, "attach"),
    (PluginHost, "run_started"),
    (TraceWriter, "open"),
    (TraceWriter, "finish"),
    (DetectorRunner, "__init__"),
]


@pytest.mark.parametrize(("owner", "name"), ENTERING, ids=lambda x: getattr(x, "__name__", x))
def test_whatever_fails_on_entering_training_goes_on(monkeypatch, caplog, owner, name):
    def program(watch):
        torch.manual_seed(3)
        model = tower()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        session = watch(model)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            dbg = session.__enter__()
        with contextlib.ExitStack() as stack:
            stack.push(session.__exit__)
            for _ in range(N):
                dbg.record_loss(one_step(model, optimizer).item())
        return [model]

    dbg = same_but_for_warnings(program)
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    assert repr(dbg)


def test_a_tap_that_fails_does_not_reach_training(monkeypatch, caplog):
    monkeypatch.setattr(taps.Tap, "_eager", broken)
    dbg = same_but_for_warnings()
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    assert len(dbg.trace.run.warnings) == 1


def test_a_failure_that_gets_out_is_noticed(monkeypatch):
    monkeypatch.setattr(recorder.Recorder, "step_ended", broken)
    with pytest.raises(ZeroDivisionError):
        same_but_for_warnings()


def test_the_exception_of_the_user_passes_unchanged_and_the_trace_is_safe(tmp_path):
    error = RuntimeError("mine")
    model = tower()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train():
        with NeuralDbg(model, trace=tmp_path / "run.ndbg") as dbg:
            for step in range(40):
                loss = one_step(model, optimizer, spoil=lambda x, step=step: x / (step != 25))
                dbg.record_loss(loss.item())
                if step == 30:
                    raise error

    with pytest.raises(RuntimeError) as caught:
        train()
    assert caught.value is error
    assert error.__cause__ is error.__context__ is None
    assert [frame.name for frame in caught.traceback][-1] == "train"
    loaded = load_trace(tmp_path / "run.ndbg")
    assert "mine" in (loaded.trace.exception or "")
    first = loaded.explain_failure()[0]
    assert (str(first.failure_type), first.onset) == ("data_anomaly", 25)


@pytest.mark.parametrize("place", ["/proc/run.ndbg", "/dev/null/run.ndbg", ".", "missing/run.ndbg"])
def test_a_trace_that_cannot_be_written_is_kept_in_memory(place, caplog, tmp_path):
    path = tmp_path / place
    model = tower()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model, trace=path) as dbg:
        for _ in range(N):
            dbg.record_loss(one_step(model, optimizer))
    assert dbg.trace.step_count == N
    if not path.is_file():
        assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1
        assert any("memory" in sentence for sentence in dbg.trace.run.warnings)
    assert dbg.explain_failure() == []


def python(code, *arguments, cwd, **options):
    """Run a program of its own and return what it did."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=cwd, text=True, capture_output=True, timeout=100, check=False, **options,
    )  # fmt: skip


PROGRAM = """
    import os, resource, signal, sys, time
    import torch
    from torch import nn
    from neuraldbg import NeuralDbg

    torch.set_num_threads(1)
    torch.manual_seed(0)
    path, end = sys.argv[1:3]
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if end == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
    with NeuralDbg(model, trace=path) as dbg:
        for step in range(400):
            x = torch.randn(8, 6)
            y = x[:, :1]
            if step == 90:
                x[2, 3] = float("nan")
            loss = (model(x) - y).pow(2).mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            dbg.record_loss(loss)
            if step == 300 and end == "kill":
                time.sleep(0.8)
                print("going", flush=True)
            if step == 310 and end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
    first = dbg.explain_failure()[0]
    print(first.failure_type, first.onset, dbg.trace.step_count)
"""


def test_a_full_disk_costs_the_file_and_not_the_run(tmp_path):
    done = python(PROGRAM, "run.ndbg", "full", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["data_anomaly", "90", "400"]
    assert done.stderr.count("cannot be written") == 1


def test_a_killed_process_leaves_a_trace_that_explains(tmp_path):
    done = python(PROGRAM, "run.ndbg", "kill", cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert "going" in done.stdout
    loaded = load_trace(tmp_path / "run.ndbg")
    assert 290 <= loaded.trace.step_count <= 311
    assert not loaded.trace.is_finished
    first = loaded.explain_failure()[0]
    assert (str(first.failure_type), first.onset) == ("data_anomaly", 90)
    assert loaded.report(tmp_path / "report.html")
