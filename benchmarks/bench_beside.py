# SPDX-License-Identifier: MIT
"""What watching costs, beside other tools: time, host reads, memory.

    python benchmarks/bench_beside.py [--peers PYTHON] [--public PYTHON] [--save] [--rounds 12]
                                      [--model mlp cnn gpt tiny] [--device cuda]

Each tool trains its own copy of a model in a process of its own, under the interpreter that has
it; the processes take turns of a few steps, one at a time, in an order that rotates. The figure is
the median over rounds of the ratio of CPU time to the plain loop's in the same round; a second
plain loop is the control, and its distance from 1 is noise. `--peers` has wandb and torchlens,
`--public` the published neuraldbg 1.x; without them these tools are left out. On an accelerator
(`--device cuda --model gpt2`) it is wall time, and `--save` writes a measurement of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import record
from models import WARMUP

HERE = Path(__file__).resolve().parent
OURS = ("plain", "control", "ours", "anomaly")
PEERS = ("wandb", "wandb-all", "torchlens-checks", "torchlens-trace")
SLOW = {"torchlens-trace": 50, "wandb-all": 4}
"""Tools that take many plain steps for one, and by how much their turns are shorter."""
MODELS = {"mlp": 4, "cnn": 3, "gpt": 4, "tiny": 200, "gpt2": 2}
"""Steps of a turn."""
DEFAULT = ("mlp", "cnn", "gpt", "tiny")
OTHERS_WARMUP = 5
"""Steps before the first turn of tools that have no budget to settle."""
# Without these glibc gives memory back and asks for it again on every step, and its page faults
# drown everything; for memory over steps the opposite is wanted.
KEEP = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
GIVE_BACK = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "131072"}
SETTLED, LATER = 2_000, 4_000
"""Steps of the tiny model between which the resident set's growth is compared."""


class Loop:
    """A training loop in another process, stepped over a pipe."""

    def __init__(
        self, python: str, tool: str, model: str, malloc: dict[str, str], device: str = "cpu"
    ) -> None:
        self.tool = tool
        environment = os.environ | malloc | {"OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}
        if tool == "public":
            environment.pop("PYTHONPATH", None)
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [python, str(HERE / "lockstep.py"), tool, model, device],
            cwd=self._folder.name,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, command: str) -> dict[str, float]:
        """Send a command and wait for its answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # noqa: S101 - for the type checker
        assert stdout is not None  # noqa: S101
        print(command, file=stdin, flush=True)
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"the loop under {self.tool!r} ended: run lockstep.py by hand")
        return json.loads(line)

    def __enter__(self) -> Loop:  # noqa: PYI034 - a class of one use
        return self

    def __exit__(self, *_: object) -> None:
        """End the process and what it wrote."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


def interpreters(args: argparse.Namespace) -> dict[str, str]:
    """Return the tools to measure, each with the interpreter that has it."""
    found = dict.fromkeys(OURS, sys.executable)
    if args.peers:
        found |= dict.fromkeys(PEERS, str(Path(args.peers).absolute()))
    if args.public:
        found["public"] = str(Path(args.public).absolute())
    return {tool: python for tool, python in found.items() if tool not in args.without}


def side_by_side(model: str, tools: dict[str, str], rounds: int, device: str) -> dict[str, Any]:
    """Return each tool's ratio and host reads per step on a model, all in one interleaved run."""
    steps = MODELS[model]
    spent: dict[str, list[float]] = {tool: [] for tool in tools}
    with ExitStack() as stack:
        loops = {t: stack.enter_context(Loop(p, t, model, KEEP, device)) for t, p in tools.items()}
        for tool, loop in loops.items():
            loop.ask(f"turn {WARMUP[model] if tool == 'ours' else OTHERS_WARMUP}")
        names = list(loops)
        for turn in range(rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                count = max(1, steps // SLOW.get(name, 1))
                spent[name].append(loops[name].ask(f"turn {count}")["seconds"] / count)
        reads = {}
        for tool, loop in loops.items():
            count = max(4, 5 * steps // SLOW.get(tool, 1))
            reads[tool] = loop.ask(f"syncs {count}")["calls"] / count
    others = [tool for tool in tools if tool != "plain"]
    ratios = {t: [a / b for a, b in zip(spent[t], spent["plain"], strict=True)] for t in others}
    return {
        "plain_ms": 1e3 * statistics.median(spent["plain"]),
        "ratio": {t: round(statistics.median(ratios[t]), 4) for t in others},
        "quartiles": {t: _quartiles(ratios[t]) for t in others},
        "added_reads": {t: reads[t] - reads["plain"] for t in others},
    }


def _quartiles(values: list[float]) -> list[float]:
    """Return the lower and the upper one; of fewer than two values, the value itself."""
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return [round(low, 4), round(high, 4)]


def memory(tools: dict[str, str]) -> dict[str, float]:
    """Return how many MB each tool's process grows between two steps of the tiny model."""
    grown = {}
    for tool, python in tools.items():
        if tool in {"control", *SLOW}:
            continue
        with Loop(python, tool, "tiny", GIVE_BACK) as loop:
            loop.ask(f"memory {SETTLED}")
            grown[tool] = round(loop.ask(f"memory {LATER - SETTLED}")["mb"], 2)
        print(f"memory {tool}: {grown[tool]:+.2f} MB", flush=True)
    return grown


def peers_versions(args: argparse.Namespace) -> dict[str, str]:
    """Return the versions of the other tools, from their interpreters."""
    found = {}
    for python, names in ((args.peers, ("wandb", "torchlens")), (args.public, ("neuraldbg",))):
        for name in names if python else ():
            ask = f"from importlib.metadata import version; print(version({name!r}))"
            answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
            shown = "neuraldbg (public)" if name == "neuraldbg" else name
            found[shown] = answer.stdout.strip()
    return found


def main() -> None:
    """Measure, print as it comes, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--model", nargs="*", choices=list(MODELS), default=list(DEFAULT))
    parser.add_argument("--device", default="cpu", help="where the models train: cpu, cuda, mps")
    parser.add_argument("--without", nargs="*", default=[], help="tools to leave out")
    parser.add_argument("--peers", metavar="PYTHON")
    parser.add_argument("--public", metavar="PYTHON")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    start, tools = time.monotonic(), interpreters(args)
    data: dict[str, Any] = {"models": {}, "rounds": args.rounds, "threads": 1}
    data["device"] = device_name(args.device)
    for model in args.model:
        found = data["models"][model] = side_by_side(model, tools, args.rounds, args.device)
        ratios = "  ".join(f"{tool} {ratio:.3f}" for tool, ratio in found["ratio"].items())
        print(f"{model}: plain {found['plain_ms']:.2f} ms  {ratios}", flush=True)
        reads = "  ".join(f"{tool} {reads:.2f}" for tool, reads in found["added_reads"].items())
        print(f"{model}: added host reads per step  {reads}", flush=True)
    if args.device == "cpu":
        data["memory"] = {"steps": [SETTLED, LATER], "mb": memory(tools)}
    data["wall_s"] = round(time.monotonic() - start)
    if args.save:
        name = "overhead" if args.device == "cpu" else "overhead-accelerator"
        record.save(name, record.command(), data, **peers_versions(args))
    print(f"{data['wall_s']} s")


def device_name(device: str) -> str:
    """Return what an accelerator is called, `cpu` for the processor."""
    if device == "cpu":
        return device
    import torch

    return str(torch.get_device_module(device).get_device_name())


if __name__ == "__main__":
    main()
