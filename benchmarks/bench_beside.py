# SPDX-License-Identifier: MIT
"""What watching costs, beside other tools: time, host reads, memory.

    python benchmarks/bench_beside.py [--peers PYTHON] [--public PYTHON] [--save]
                                      [--sets 3] [--rounds 3] [--without TOOL ...]
                                      [--model mlp cnn gpt tiny] [--device cuda]

Each tool trains its own copy of a model in a process of its own, under the interpreter that has
it; the processes take turns of half a second of plain steps, one at a time, in an order that
rotates, all of them at the same training step. The ratio of a set is the median over its rounds of
CPU time over the plain loop's in the same round; the figure is the median over sets of fresh
processes, since where its memory lies makes a process faster or slower for as long as it lives. A
second plain loop is the control, and its distance from 1 is noise. `--peers` has wandb and
torchlens, `--public` the published neuraldbg 1.x; without them these tools are left out. On an
accelerator (`--device cuda --model gpt2`) it is wall time, and `--save` writes a measurement of
its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import record
from allocator import GIVE_BACK, KEEP
from models import WARMUP
from report_cost import ONCE

HERE = Path(__file__).resolve().parent
OURS = ("plain", "control", "ours", "anomaly")
PEERS = ("wandb", "wandb-all", "torchlens-checks", "torchlens-trace")
SHORTER = {("torchlens-trace", "tiny"): 100, ("torchlens-trace", "small"): 50}
"""Where a turn would take minutes, by how much fewer of its steps the tool sees; it takes the
others without, so that it is as far in the training as everyone."""
MODELS = ("mlp", "cnn", "gpt", "tiny", "small", "gpt2")
AGE = WARMUP | {"cnn": 80, "gpt": 90}
"""Steps of every tool before its first turn. What one fixed batch does to the weights changes what
a plain step costs, so all are compared at the same step, which is past ours' free first ones."""
TURN_S = 0.5
"""Seconds of plain steps in a turn: more than the 0.4 s of wall time after which NeuralDBG hands on
what it holds back, or every turn would begin with it, however short."""
READ_TURNS = 3
"""Turns over which host reads are counted, in the first set."""
SETTLED, LATER = 2_000, 4_000
"""Steps of the tiny model between which the resident set's growth is compared."""
AT_ONCE = 2
"""Processes at a time where nothing is timed."""


class Loop:
    """A training loop in another process, stepped over a pipe."""

    def __init__(
        self, python: str, tool: str, model: str, malloc: dict[str, str], device: str = "cpu"
    ) -> None:
        self.tool, self._shorter = tool, SHORTER.get((tool, model), 1)
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

    def take(self, steps: int, what: str = "turn") -> float:
        """Take steps; return per step what was asked for: CPU seconds, or host reads (`syncs`)."""
        seen = math.ceil(steps / self._shorter)
        (figure,) = self.ask(f"{what} {seen}").values()
        if seen < steps:
            self.ask(f"aside {steps - seen}")
        return figure / seen

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


def one_set(
    model: str, tools: dict[str, str], rounds: int, device: str, *, count_reads: bool
) -> dict[str, Any]:
    """Let fresh processes, one per tool, take turns; return seconds and host reads per step."""
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        loops = {t: stack.enter_context(Loop(p, t, model, KEEP, device)) for t, p in tools.items()}

        def all_take(steps: int, what: str) -> dict[str, float]:
            took = pool.map(lambda loop: loop.take(steps, what), loops.values())
            return dict(zip(loops, took, strict=True))

        warm = all_take(AGE[model], "turn")
        steps = max(1, round(TURN_S / warm["plain"]))
        names, spent = list(loops), {tool: [] for tool in tools}
        for turn in range(rounds):
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                spent[name].append(loops[name].take(steps))
        reads = all_take(READ_TURNS * steps, "syncs") if count_reads else {}
    return {"steps": steps, "spent": spent, "reads": reads}


def figures(sets: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a model's figures from its sets; the tools of later sets are among the first one's."""
    others = [tool for tool in sets[0]["spent"] if tool != "plain"]
    ratios: dict[str, list[list[float]]] = {tool: [] for tool in others}
    for one in sets:
        plain = one["spent"]["plain"]
        for tool in one["spent"].keys() & ratios:
            ratios[tool].append([a / b for a, b in zip(one["spent"][tool], plain, strict=True)])
    medians = {tool: [statistics.median(one) for one in ratios[tool]] for tool in others}
    plains = [statistics.median(one["spent"]["plain"]) for one in sets]
    reads = sets[0]["reads"]
    return {
        "plain_ms": 1e3 * statistics.median(plains),
        "ratio": {t: round(statistics.median(medians[t]), 4) for t in others},
        "quartiles": {t: _quartiles([r for one in ratios[t] for r in one]) for t in others},
        "by_set": {t: [round(value, 4) for value in medians[t]] for t in others},
        "added_reads": {t: reads[t] - reads["plain"] for t in others},
    }


def _quartiles(values: list[float]) -> list[float]:
    """Return the lower and the upper one; of fewer than two values, the value itself."""
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return [round(low, 4), round(high, 4)]


def side_by_side(args: argparse.Namespace, tools: dict[str, str]) -> dict[str, Any]:
    """Return the figures of each model; one set of all models comes after the other."""
    sets: dict[str, list[dict[str, Any]]] = {model: [] for model in args.model}
    for number in range(args.sets):
        now = {t: p for t, p in tools.items() if number == 0 or t not in ONCE}
        for model in args.model:
            found = one_set(model, now, args.rounds, args.device, count_reads=number == 0)
            sets[model].append(found)
            ratios = figures([found | {"reads": dict.fromkeys(now, 0)}])["ratio"]
            said = "  ".join(f"{tool} {ratio:.3f}" for tool, ratio in ratios.items())
            print(f"set {number + 1}, {model}, turns of {found['steps']} steps: {said}", flush=True)
    return {model: figures(found) for model, found in sets.items()}


def memory(tools: dict[str, str]) -> dict[str, float]:
    """Return how many MB each tool's process grows between two steps of the tiny model."""

    def grown(tool: str) -> float:
        with Loop(tools[tool], tool, "tiny", GIVE_BACK) as loop:
            loop.ask(f"memory {SETTLED}")
            return round(loop.ask(f"memory {LATER - SETTLED}")["mb"], 2)

    measured = [tool for tool in tools if tool not in {"control", *ONCE}]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(measured, pool.map(grown, measured), strict=True))
    for tool, mb in found.items():
        print(f"memory {tool}: {mb:+.2f} MB", flush=True)
    return found


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


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=3, help="of fresh processes per model")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each process of a set")
    parser.add_argument("--model", nargs="*", choices=MODELS, default=MODELS[:5])
    parser.add_argument("--device", default="cpu", help="where the models train: cpu, cuda, mps")
    parser.add_argument("--without", nargs="*", default=[], help="tools to leave out")
    parser.add_argument("--peers", metavar="PYTHON")
    parser.add_argument("--public", metavar="PYTHON")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, print as it comes, save."""
    args = parsed()
    start, tools = time.monotonic(), interpreters(args)
    data: dict[str, Any] = {"rounds": args.rounds, "sets": args.sets, "threads": 1}
    data["device"] = device_name(args.device)
    data["models"] = side_by_side(args, tools)
    for model, found in data["models"].items():
        ratios = "  ".join(f"{tool} {ratio:.3f}" for tool, ratio in found["ratio"].items())
        print(f"{model}: plain {found['plain_ms']:.2f} ms  {ratios}")
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
