# SPDX-License-Identifier: MIT
"""What stays: nothing of a closed session, and little of a step of long ago."""

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.schema.facts import GradState, LedgerFacts, OptimizerStat
from neuraldbg.schema.run import LayerInfo, LayerRole, OptimizerInfo, ParameterInfo, RunInfo
from neuraldbg.schema.thinned import ThinnedSteps
from neuraldbg.settings import Settings
from neuraldbg.trace import TraceWriter, open_trace


def one_session(model, folder):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model, trace=folder / "run.ndbg") as dbg:
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 3)).square().mean()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    assert dbg.trace.step_count == 3


def census():
    """Return how many objects, open files and threads there are."""
    for _ in range(3):
        gc.collect()
    files = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    return len(gc.get_objects()), files, threading.active_count()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_sessions_opened_and_closed_leave_nothing(tmp_path, count):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    for _ in range(20):
        one_session(model, tmp_path)
    objects, files, threads = census()
    for _ in range(count):
        one_session(model, tmp_path)
    now = census()
    assert now[1:] == (files, threads)
    # One kept object per session would be `count`; caches of others may fill a little.
    assert now[0] - objects < count / 2


def block(run, first, size=256):
    """Return thinned steps with the labels from `first` on."""
    steps = np.arange(first, first + size)
    shape = size, len(run.parameters)
    rng = np.random.default_rng(first)
    return ThinnedSteps(
        run=run,
        steps=steps,
        losses=tuple({"loss": float(v)} for v in rng.normal(1.0, 0.1, size)),
        metrics=tuple({} for _ in range(size)),
        grad_norm=rng.random(shape, dtype=np.float32),
        grad_state=np.full(shape, float(GradState.PRESENT), dtype=np.float32),
        optimizer=np.ones((size, 1, len(OptimizerStat)), dtype=np.float32),
        ledger=np.ones((size, len(LedgerFacts.__dataclass_fields__))),
        seconds=np.full(size, 1e-3),
    )


def weight(path):
    return ParameterInfo(
        name=f"{path}.weight", layer=path, shape=(4, 4), dtype="float32", is_trainable=True
    )


def synthetic_run(layers=8):
    paths = [f"blocks.{i}" for i in range(layers)]
    return RunInfo(
        neuraldbg_version="2.0.0",
        torch_version="2.13.0",
        created="2026-01-01T00:00:00+00:00",
        models=("",),
        layers=tuple(LayerInfo(path=p, kind="Linear", role=LayerRole.LINEAR) for p in paths),
        parameters=tuple(weight(p) for p in paths),
        optimizers=(
            OptimizerInfo(kind="SGD", groups=1, parameters=tuple(f"{p}.weight" for p in paths)),
        ),
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_trace_of_a_million_steps_is_hardly_larger_than_one_of_thirty_thousand(tmp_path):
    run = synthetic_run()
    sizes = {}
    for steps in (32_768, 1_048_576):
        path = tmp_path / f"{steps}.ndbg"
        writer = TraceWriter(path, run, Settings())
        for first in range(0, steps, 256):
            writer.write_thinned(block(run, first), is_exact=first % 16_384 == 0)
        writer.finish()
        trace = open_trace(path)
        assert trace.step_count == steps
        assert len(trace.facts) < 2_000
        assert len(trace.loss) <= 16_384
        sizes[steps] = os.path.getsize(path)  # noqa: PTH202 - one number
    assert sizes[1_048_576] < 1.5 * sizes[32_768]
