# SPDX-License-Identifier: MIT
"""Memory over steps: how much the resident size grows while a small network trains.

    python benchmarks/bench_memory.py [--steps 100000] [--check 2.0] [--trace FILE] [--save]

The figure is the growth of the resident set from step 2,000 to the last one, in MB. The same loop
without NeuralDBG comes first, over at most 20,000 steps.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import allocator

allocator.begin_with(allocator.GIVE_BACK)

import torch  # noqa: E402
from torch import nn  # noqa: E402

from neuraldbg import NeuralDbg  # noqa: E402

SETTLED = 2_000


def resident_mb() -> float:
    """Return the resident set of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def growth(steps: int, *, watch: bool, trace: str | None) -> float:
    """Train for `steps` steps and return the growth from step 2,000 on, in MB."""
    torch.manual_seed(0)
    hidden = [nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.ReLU()]
    model = nn.Sequential(*hidden, nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    settled = 0.0
    with NeuralDbg(model, trace=trace) if watch else nullcontext() as dbg:
        for step in range(steps):
            x = torch.randn(16, 8)
            loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if dbg is not None:
                dbg.record_loss(loss.item())
            if step == SETTLED:
                settled = resident_mb()
        return resident_mb() - settled


def main() -> None:
    """Print one line; exit with 1 where the growth is above `--check`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--check", type=float, default=math.inf)
    parser.add_argument("--trace")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    args = parser.parse_args()
    torch.set_num_threads(1)
    short = min(args.steps, 20_000)
    plain = growth(short, watch=False, trace=None)
    watched = growth(args.steps, watch=True, trace=args.trace)
    where = "file" if args.trace else "memory"
    steps = f"steps {SETTLED} to {args.steps}"
    print(f"| trace in {where} | {steps} | {watched:+.2f} MB | plain {plain:+.2f} MB |")
    if args.save:
        import record

        data = {
            "settled": SETTLED,
            "in_file": bool(args.trace),
            "plain": {"steps": short, "mb": plain},
            "ours": {"steps": args.steps, "mb": watched},
        }
        record.save("memory", record.command(), data)
    sys.exit(1 if watched - max(plain, 0.0) > args.check else 0)


if __name__ == "__main__":
    main()
