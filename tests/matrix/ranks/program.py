"""What one of two ranks runs: `RANK=0 WORLD_SIZE=2 python program.py FOLDER [SCENARIO ...]`.

Each scenario trains twice on the same numbers, without and with NeuralDBG, and writes beside its
trace what the two had in common.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from neuraldbg import NeuralDbg

STEPS, ROWS, WIDTH = 40, 16, 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


class Blocks(nn.Module):
    """No batch statistics, and a last layer whose rows two ranks cannot share."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(WIDTH, 18), nn.LayerNorm(18), nn.Tanh())
        self.second = nn.Sequential(nn.Linear(18, 17), nn.Tanh())
        self.head = nn.Linear(17, 1)

    def forward(self, x):
        return self.head(self.second(self.first(x)))


class Run:
    """One training run: watched where it has a place for its trace."""

    def __init__(self, rank, trace=None, steps=STEPS):
        self.rank, self.trace, self.steps = rank, trace, steps
        self.norms, self.session = [], None
        self.generator = torch.Generator().manual_seed(100 + rank)
        self.mesh = None

    def batch(self):
        x = torch.randn(ROWS, WIDTH, generator=self.generator)
        return x, x.sum(1, keepdim=True).sin()

    def watch(self, model):
        if self.trace is None:
            return contextlib.nullcontext()
        self.session = NeuralDbg(model, trace=self.trace)
        return self.session

    def train(self, call, model, optimizer, *, change=None, average=None, watch=None):
        """Train `call`, whose parameters are those of `model`."""
        with self.watch(call if watch is None else watch):
            for step in range(self.steps):
                x, y = self.batch()
                if change is not None:
                    change(step, x)
                loss = nn.functional.mse_loss(call(x), y)
                optimizer.zero_grad()
                loss.backward()
                if average is not None:
                    average(step)
                self.note(model)
                optimizer.step()
                if self.session is not None:
                    self.session.record_loss(loss)
        return model

    def note(self, model):
        """Keep the gradient norms that the optimizer is about to use, of what this rank holds."""
        self.norms.append(
            {
                name: float(getattr(p.grad, "to_local", lambda p=p: p.grad)().norm())
                for name, p in model.named_parameters()
                if p.grad is not None
            }
        )


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def average_gradients(model, _step):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


# --- replicated ---------------------------------------------------------------------------------


def ddp(run):
    model = Net()
    wrapper = DistributedDataParallel(model)
    return run.train(wrapper, model, adam(model))


def ddp_inner(run):
    """The user passes the module inside the wrapper."""
    model = Net()
    return run.train(DistributedDataParallel(model), model, adam(model), watch=model)


def accumulation(run):
    model = Net()
    wrapper = DistributedDataParallel(model)
    optimizer = adam(model)
    with run.watch(wrapper):
        for _ in range(run.steps):
            optimizer.zero_grad()
            for part in range(2):
                x, y = run.batch()
                with wrapper.no_sync() if part == 0 else contextlib.nullcontext():
                    loss = nn.functional.mse_loss(wrapper(x), y) / 2
                    loss.backward()
            run.note(model)
            optimizer.step()
            if run.session is not None:
                run.session.record_loss(loss)
    return model


def bypassed(run):
    """The loop calls the module past its wrapper: nothing is ever averaged."""
    model = Net()
    wrapper = DistributedDataParallel(model)
    return run.train(wrapper.module, model, adam(model), watch=wrapper)


def bypassed_inner(run):
    model = Net()
    wrapper = DistributedDataParallel(model)
    return run.train(wrapper.module, model, adam(model))


def other_seed(run):
    """Gradients are averaged by hand over models that do not start equal."""
    torch.manual_seed(run.rank)
    model = Blocks()
    return run.train(model, model, adam(model), average=partial(average_gradients, model))


def by_hand(run):
    """Gradients are averaged by hand over models that start equal: as right as DDP."""
    model = Blocks()
    return run.train(model, model, adam(model), average=partial(average_gradients, model))


def local_steps(run):
    """Weights are averaged every fourth step instead of gradients on each: local SGD."""
    model = Blocks()

    def average(step):
        if step % 4 == 0:
            for p in model.parameters():
                dist.all_reduce(p.data)
                p.data /= dist.get_world_size()

    return run.train(model, model, adam(model), average=average)


def changed_on_one(run):
    """One rank changes its weights after the wrapper made all equal."""
    model = Blocks()
    wrapper = DistributedDataParallel(model)

    def change(step, _x):
        if step == 20 and run.rank == 1:
            with torch.no_grad():
                model.head.weight.mul_(1.5)

    return run.train(wrapper, model, adam(model), change=change)


def other_lr(run):
    """One rank's schedule was forgotten."""
    model = Blocks()
    optimizer = adam(model)

    def change(step, _x):
        if step == 10 and run.rank == 0:
            optimizer.param_groups[0]["lr"] = 1e-3

    return run.train(DistributedDataParallel(model), model, optimizer, change=change)


def nan_on_one(run):
    """One rank's data holds a NaN; the average takes it to all."""
    model = Blocks()

    def change(step, x):
        if step == 20 and run.rank == 1:
            x[0, 0] = float("nan")

    return run.train(DistributedDataParallel(model), model, adam(model), change=change)


# --- sharded ------------------------------------------------------------------------------------


def sharded(model, run):
    for part in (model.first, model.second):
        fully_shard(part, mesh=run.mesh)
    return fully_shard(model, mesh=run.mesh)


def fsdp(run):
    model = sharded(Blocks(), run)
    return run.train(model, model, adam(model))


def fsdp_clipped(run):
    model = sharded(Blocks(), run)
    clip = partial(torch.nn.utils.clip_grad_norm_, model.parameters(), 0.5)
    return run.train(model, model, adam(model), average=lambda _step: clip())


def fsdp_nan(run):
    model = sharded(Blocks(), run)

    def change(step, x):
        if step == 20 and run.rank == 1:
            x[0, 0] = float("nan")

    return run.train(model, model, adam(model), change=change)


def fsdp_dead(run):
    """Biases of the first layer are pushed so low that its tanh is flat."""
    model = sharded(Blocks(), run)
    with torch.no_grad():
        model.first[0].weight.mul_(300)
        model.first[1].weight.mul_(60)
    return run.train(model, model, adam(model))


SCENARIOS = {
    one.__name__: one
    for one in (
        ddp, ddp_inner, accumulation, bypassed, bypassed_inner, other_seed, by_hand, local_steps,
        changed_on_one, other_lr, nan_on_one, fsdp, fsdp_clipped, fsdp_nan, fsdp_dead,
    )
}  # fmt: skip


def local(tensor):
    """Return what this rank holds, with a number for what is not finite, so that equal is equal."""
    part = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part.detach().double().nan_to_num(nan=7e77)


def hooks(model):
    """Return the hooks left on the user's modules; those of FSDP are its own."""
    tables = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    found = [hook for m in model.modules() for t in tables for hook in getattr(m, t).values()]
    return sum("neuraldbg" in (getattr(hook, "__module__", "") or "") for hook in found)


def main(folder, names):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size
    )
    mesh = init_device_mesh("cpu", (size,))
    groups = {dist.distributed_c10d._get_default_group(), mesh.get_group()}
    for name in names:
        results = []
        for trace in (None, folder / f"{name}.ndbg"):
            torch.manual_seed(0)
            before = sum(group._get_sequence_number_for_group() for group in groups)
            run = Run(rank, trace)
            run.mesh = mesh
            model = SCENARIOS[name](run)
            after = sum(group._get_sequence_number_for_group() for group in groups)
            state = {key: local(value) for key, value in model.state_dict().items()}
            results.append((run, state, after - before, hooks(model)))
        (plain, expected, collectives, _), (watched, state, with_us, left) = results
        report = {
            "is_equal": all(torch.equal(state[key], value) for key, value in expected.items()),
            "collectives": [collectives, with_us],
            "hooks": left,
            "norms": plain.norms,
            "same_norms": str(plain.norms) == str(watched.norms),
            "causes": [one.cause for one in watched.session.explain_failure()],
            "summary": watched.session.summary(),
        }
        (folder / f"{name}.{rank}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(SCENARIOS))
