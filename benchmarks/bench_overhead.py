# SPDX-License-Identifier: MIT
"""Step time, watched / plain, interleaved in one run, with a plain / plain control.

    python benchmarks/bench_overhead.py [--rounds 12] [--threads 1] [--model mlp ...] [--check 1.10]

Two copies of each program, one watched and one not, take turns of a few steps; a third, plain too,
is the control: what its ratio is away from 1 is noise. The figure is the median over rounds of the
ratio of CPU time. Memory trimming of glibc is off, or its page faults drown everything.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MALLOC = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
if any(os.environ.get(name) != value for name, value in _MALLOC.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **_MALLOC})  # noqa: S606

import torch  # noqa: E402
from models import PROGRAMS  # noqa: E402

from neuraldbg import NeuralDbg  # noqa: E402


def turns(name: str, *, watch: bool, steps: int, warmup: int) -> Iterator[float]:
    """Yield the CPU seconds of one turn of `steps` steps after another."""
    torch.manual_seed(0)
    model, step = PROGRAMS[name]()
    with NeuralDbg(model) if watch else nullcontext() as dbg:
        for _ in range(warmup):
            loss = step()
            if dbg is not None:
                dbg.record_loss(loss.item())
        while True:
            start = time.process_time()
            for _ in range(steps):
                loss = step()
                value = loss.item()
                if dbg is not None:
                    dbg.record_loss(value)
            yield time.process_time() - start


def measure(name: str, rounds: int) -> tuple[float, float, float]:
    """Return (watched / plain, control / plain, plain milliseconds per step), medians of rounds."""
    steps = {"tiny": 200}.get(name, 4)
    warmup = {"tiny": 300}.get(name, 80 if name == "mlp" else 70)
    runs = [turns(name, watch=w, steps=steps, warmup=warmup) for w in (False, True, False)]
    for run in runs:
        next(run)
    watched, control, plain = [], [], []
    for turn in range(rounds):
        order = [(turn + i) % 3 for i in range(3)]
        spent = {i: next(runs[i]) for i in order}
        watched.append(spent[1] / spent[0])
        control.append(spent[2] / spent[0])
        plain.append(1e3 * spent[0] / steps)
    for run in runs:
        run.close()
    return statistics.median(watched), statistics.median(control), statistics.median(plain)


def main() -> None:
    """Print the table; exit with 1 where a ratio, less the control's error, is over `--check`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", nargs="*", choices=list(PROGRAMS), default=["mlp", "cnn", "gpt"])
    parser.add_argument("--check", type=float, default=math.inf)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {args.threads} thread(s), {args.rounds} rounds")
    print("| model | watched / plain | plain / plain | ms per plain step |\n|---|---|---|---|")
    is_over = False
    for name in args.model:
        ratio, control, plain = measure(name, args.rounds)
        is_over |= ratio / max(control, 1.0) > args.check
        print(f"| {name} | {ratio:.3f} | {control:.3f} | {plain:.2f} |", flush=True)
    sys.exit(1 if is_over else 0)


if __name__ == "__main__":
    main()
