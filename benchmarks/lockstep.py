# SPDX-License-Identifier: MIT
"""One training loop under one tool, stepped from outside over a pipe.

    python benchmarks/lockstep.py TOOL MODEL [DEVICE]

Reads one command per line and prints one JSON line for each: `turn N` takes N steps and gives
their CPU seconds (on an accelerator wall seconds, its queue emptied before and after), `syncs N`
takes N steps and gives how often a tensor was read on the host, `memory N` takes N steps and gives
the growth of the resident set, `aside N` takes N steps without what the tool does beside a step.
Each tool runs under the interpreter that has it; this file imports torch and the tool it is asked
for, nothing else. Every loop reads its loss once per step, as users do.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from models import PROGRAMS
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READS = ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__")
"""Methods of a tensor that make the host wait for an accelerator."""
Step = Any
Loop = "Callable[[], None]"


def plain(_: nn.Module, step: Step) -> Iterator[Callable[[], None]]:
    """Nothing watches."""

    def once() -> None:
        step().item()

    yield once


def ours(model: nn.Module, step: Step) -> Iterator[Callable[[], None]]:
    """NeuralDBG of this repository, defaults."""
    from neuraldbg import NeuralDbg

    with NeuralDbg(model) as dbg:
        yield lambda: dbg.record_loss(step().item())


def public(model: nn.Module, step: Step) -> Iterator[Callable[[], None]]:
    """The published neuraldbg 1.x, a loss and a step told to it per step."""
    from neuraldbg import NeuralDbg

    with NeuralDbg(model) as dbg:

        def once() -> None:
            dbg.record_loss(step().item())
            dbg.step_iteration()

        yield once


def anomaly(model: nn.Module, step: Step) -> Iterator[Callable[[], None]]:
    """torch.autograd.set_detect_anomaly(True)."""
    with torch.autograd.set_detect_anomaly(True):
        yield from plain(model, step)


def _wandb(model: nn.Module, step: Step, **options: Any) -> Iterator[Callable[[], None]]:
    import wandb

    settings = wandb.Settings(silent=True, console="off")
    with wandb.init(
        project="lockstep", mode="offline", dir=str(Path.cwd()), settings=settings
    ) as r:
        r.watch(model, **options)
        yield lambda: r.log({"loss": step().item()})


def wandb_default(model: nn.Module, step: Step) -> Iterator[Callable[[], None]]:
    """wandb.watch(model), offline: gradients, every 1,000 batches."""
    yield from _wandb(model, step)


def wandb_all(model: nn.Module, step: Step) -> Iterator[Callable[[], None]]:
    """wandb.watch(model, log="all", log_freq=1), offline: on every step, as ours looks."""
    yield from _wandb(model, step, log="all", log_freq=1)


def torchlens_checks(model: nn.Module, step: Step) -> Iterator[Callable[[], None]]:
    """TorchLens' capture-free training checks: change, ratio, magnitude, non-finite gradients."""
    from torchlens.checks import ChecksSession

    session = ChecksSession(model, step.optimizer, clip_norm=step.clip)
    session.register_change_check()
    session.register_update_ratio_check()
    session.register_magnitude_check()
    session.register_nonfinite_gradient_check()
    with session:
        yield from plain(model, step)


def torchlens_trace(model: nn.Module, step: Step) -> Iterator[Callable[[], None]]:
    """TorchLens' capture of one forward pass, once per step beside the step."""
    import torchlens

    seen: list[Any] = []
    handle = model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    step()
    handle.remove()

    def once() -> None:
        with torch.no_grad():
            torchlens.trace(model, *seen[0])
        step().item()

    yield once


TOOLS: dict[str, Callable[[nn.Module, Step], Iterator[Callable[[], None]]]] = {
    "plain": plain,
    "control": plain,
    "ours": ours,
    "public": public,
    "anomaly": anomaly,
    "wandb": wandb_default,
    "wandb-all": wandb_all,
    "torchlens-checks": torchlens_checks,
    "torchlens-trace": torchlens_trace,
}


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """Count the calls by which a tensor is read on the host."""
    calls, kept = [0], {name: getattr(torch.Tensor, name) for name in READS}

    def wrapped(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            return original(*args, **kwargs)

        return call

    for name, original in kept.items():
        setattr(torch.Tensor, name, wrapped(original))
    try:
        yield calls
    finally:
        for name, original in kept.items():
            setattr(torch.Tensor, name, original)


def resident_mb() -> float:
    """Return the resident set of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def now(device: str) -> float:
    """Return CPU seconds, or on an accelerator wall seconds at which all its work is done."""
    if device == "cpu":
        return time.process_time()
    torch.accelerator.synchronize()
    return time.perf_counter()


def answer(once: Callable[[], None], command: str, device: str) -> dict[str, float]:
    """Carry out one command."""
    what, _, count = command.partition(" ")
    before = resident_mb() if what == "memory" else 0.0
    start = now(device)
    with counted() if what == "syncs" else contextlib.nullcontext([0]) as calls:
        for _ in range(int(count)):
            once()
    spent = now(device) - start
    if what == "memory":
        return {"mb": resident_mb() - before}
    return {"calls": calls[0]} if what == "syncs" else {"seconds": spent}


def main() -> None:
    """Serve the commands that come in, until the input ends."""
    tool, name, device = [*sys.argv[1:], "cpu"][:3]
    # What tools print goes elsewhere: the pipe is for answers.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.device(device):
        model, step = PROGRAMS[name]()
    with contextlib.contextmanager(TOOLS[tool])(model, step) as once:
        for line in sys.stdin:
            take = (lambda: step().item()) if line.startswith("aside") else once
            print(json.dumps(answer(take, line.strip(), device)), file=pipe, flush=True)


if __name__ == "__main__":
    main()
