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
from collections.abc import Callable, Iterator
from contextlib import nullcontext

_MALLOC = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
if any(os.environ.get(name) != value for name, value in _MALLOC.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **_MALLOC})  # noqa: S606

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from neuraldbg import NeuralDbg  # noqa: E402

Step = Callable[[], torch.Tensor]


def mlp() -> tuple[nn.Module, Step]:
    """784-1024-1024-10, batch 256, Adam."""
    model = nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(256, 784), torch.randint(0, 10, (256,))
    return model, _step(model, optimizer, lambda: F.cross_entropy(model(x), y))


class Block(nn.Module):
    """A residual block of two 3x3 convolutions."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.skip = nn.Conv2d(inside, outside, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[N, C, H, W]` to `[N, D, H / stride, W / stride]`."""
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.skip(x))


def cnn() -> tuple[nn.Module, Step]:
    """ResNet-ish, width 32, 32x32 pictures, batch 32, SGD."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(),
        Block(32, 32, 1), Block(32, 32, 1), Block(32, 64, 2), Block(64, 64, 1),
        Block(64, 128, 2), Block(128, 128, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    return model, _step(model, optimizer, lambda: F.cross_entropy(model(x), y))


class Layer(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = (
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[N, T, C]` to the same."""
        n, t, c = x.shape
        q, k, v = (
            z.view(n, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(self.act(self.up(self.ln2(x))))


class Gpt(nn.Module):
    """Token and position tables, blocks, a norm and a head."""

    def __init__(self, vocab: int, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Layer(width, 4) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """`[N, T]` to `[N, T, V]`."""
        x = self.token(ids) + self.place.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt() -> tuple[nn.Module, Step]:
    """4 layers of width 128, 128 tokens, batch 8, AdamW and clipping."""
    model = Gpt(256, 128, 4, 128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    ids = torch.randint(0, 256, (8, 129))
    return model, _step(
        model,
        optimizer,
        lambda: F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()),
        clip=1.0,
    )


def tiny() -> tuple[nn.Module, Step]:
    """8-32-32-1, batch 32: a step of well under a millisecond."""
    model = nn.Sequential(
        nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(32, 8)
    y = x.prod(1, keepdim=True)
    return model, _step(model, optimizer, lambda: F.mse_loss(model(x), y))


PROGRAMS = {"mlp": mlp, "cnn": cnn, "gpt": gpt, "tiny": tiny}


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[], torch.Tensor],
    clip: float | None = None,
) -> Step:
    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss

    return step


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
