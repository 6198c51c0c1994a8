# SPDX-License-Identifier: MIT
"""Step time, watched / plain, interleaved in one run, with a plain / plain control.

    python benchmarks/bench_overhead.py [--sets 3] [--rounds 9] [--threads 1 2] [--model mlp ...]
                                        [--check 1.10] [--json rows.json] [--save]

Two copies of each program, one watched and one not, take turns of about half a second, each in a
process of its own; a third, plain too, is the control: what its ratio is away from 1 is noise. The
figure is the median over all rounds of the ratio of CPU time, after the first steps, whose watching
the budget leaves free.

Where a process lies in memory makes it slower or faster as long as it lives, by up to a fifth and
with the same program: so there are several sets of fresh processes, and glibc is asked for huge
pages. Its trimming is off, or page faults drown everything.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import allocator

allocator.begin_with(allocator.KEEP)

import torch  # noqa: E402
from models import PROGRAMS, WARMUP  # noqa: E402

import neuraldbg  # noqa: E402
from neuraldbg import NeuralDbg  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

TURN = {"tiny": 2_000, "small": 1_000, "medium": 600, "mlp": 16, "cnn": 8, "gpt": 6, "gpt2": 2}
"""Steps per turn: shorter ones would end each time that a session hands on what it holds."""


def serve(name: str, *, watch: bool, threads: int) -> None:
    """Train for as many steps as each line of stdin says, and answer with the CPU seconds taken."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, step = PROGRAMS[name]()
    with NeuralDbg(model) if watch else nullcontext() as dbg:
        for line in sys.stdin:
            start = time.process_time()
            for _ in range(int(line)):
                value = step().item()
                if dbg is not None:
                    dbg.record_loss(value)
            print(time.process_time() - start, flush=True)


class Program:
    """One program in a process of its own: an open session hears every backward of its process."""

    def __init__(self, name: str, *, watch: bool, threads: int) -> None:
        kind = "watched" if watch else "plain"
        command = [sys.executable, __file__, "--serve", kind, name, "--threads", str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def train(self, steps: int) -> float:
        """Return the CPU seconds of so many steps."""
        inlet, outlet = self._process.stdin, self._process.stdout
        if inlet is None or outlet is None:
            message = "the program has no pipes"
            raise RuntimeError(message)
        print(steps, file=inlet, flush=True)
        return float(outlet.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    model: str
    threads: int
    ratio: float
    """Watched / plain: median over rounds of the ratio of CPU time."""
    low: float
    """Lower and upper quartile of those ratios ..."""
    high: float
    control: float
    """... and plain / plain: what it is away from 1 is noise."""
    ms_per_step: float
    rounds: int
    """In all ..."""
    sets: int
    """... over so many sets of fresh processes."""


def measure(name: str, sets: int, rounds: int, threads: int) -> Row:
    """Let three processes take turns, plain, watched, plain; do so with several such sets."""
    watched, control, plain = [], [], []
    for _ in range(sets):
        for ours, other, first in _interleaved(name, rounds, threads):
            watched.append(ours / first)
            control.append(other / first)
            plain.append(1e3 * first / TURN[name])
    low, ratio, high = statistics.quantiles(watched, n=4)
    middle = statistics.median
    return Row(name, threads, ratio, low, high, middle(control), middle(plain), len(watched), sets)


def _interleaved(name: str, rounds: int, threads: int) -> Iterator[tuple[float, float, float]]:
    """Yield the CPU seconds of each turn of one set: watched, control, plain."""
    runs = [Program(name, watch=w, threads=threads) for w in (False, True, False)]
    for run in runs:
        run.train(WARMUP[name])
    for turn in range(rounds):
        spent = {i: runs[i].train(TURN[name]) for i in [(turn + i) % 3 for i in range(3)]}
        yield spent[1], spent[2], spent[0]
    for run in runs:
        run.close()


def main() -> None:
    """Print the table; exit with 1 where a ratio, less the control's error, is over `--check`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="*", default=[1])
    parser.add_argument("--model", nargs="*", choices=list(PROGRAMS), default=["mlp", "cnn", "gpt"])
    parser.add_argument("--check", type=float, default=math.inf)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "MODEL"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve[1], watch=args.serve[0] == "watched", threads=args.threads[0])
        return
    print(f"torch {torch.__version__}, neuraldbg {neuraldbg.__version__}")
    print("| model | threads | watched / plain | quartiles | plain / plain | ms per plain step |")
    print("|---|---|---|---|---|---|")
    rows = []
    for threads in args.threads:
        for name in args.model:
            row = measure(name, args.sets, args.rounds, threads)
            rows.append(row)
            print(
                f"| {name} | {threads} | {row.ratio:.3f} | {row.low:.3f} to {row.high:.3f} "
                f"| {row.control:.3f} | {row.ms_per_step:.2f} |",
                flush=True,
            )
    if args.json:
        versions = {"torch": torch.__version__, "neuraldbg": neuraldbg.__version__}
        document = [{**asdict(row), "versions": versions} for row in rows]
        args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if args.save:
        import record

        record.save("overhead-alone", record.command(), {"rows": [asdict(row) for row in rows]})
    sys.exit(any(row.ratio / max(row.control, 1.0) > args.check for row in rows))


if __name__ == "__main__":
    main()
