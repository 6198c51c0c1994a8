# SPDX-License-Identifier: MIT
"""The seam through which an operator puts a fault into a training program that it has never seen.

An operator is a module with `FAILURES`, `CAUSES` and one or both of

- `before(run)`: called once, when the program calls `watch(model)`, before the tool sees the model;
- `inside(run)`: called once, when the program enters its block, after the tool has opened: what it
  patches lies outside of the tool's own patches, as the user's own code would.

Either returns the truth of this run, `{"layers": [...], "onset": [first, last]}` (what it leaves
out is no layer, no step), or raises `NotApplicable`. Everything that `run` patched is undone when
the program returns.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

Change = Callable[[int, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]
Truth = dict[str, Any]


class NotApplicable(Exception):
    """The program has no place at which this operator could act."""


@dataclass
class Run:
    """One run of a program, as an operator sees it."""

    model: nn.Module
    """The watched model; of several, the first."""
    severity: float = 1.0
    undo: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Undone when the program returns."""
    undo_inside: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Undone before the tool closes."""
    steps: int = 0
    """Optimizer steps so far."""

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the live optimizers that hold parameters of the model."""
        mine = {id(p) for p in self.model.parameters()}
        found = [o for o in gc.get_objects() if issubclass(type(o), torch.optim.Optimizer)]
        return [o for o in found if any(id(p) in mine for g in o.param_groups for p in g["params"])]

    def schedulers(self) -> list[Any]:
        """Return the live learning-rate schedulers of those optimizers."""
        mine = {id(o) for o in self.optimizers()}
        kind = torch.optim.lr_scheduler.LRScheduler
        found = [s for s in gc.get_objects() if issubclass(type(s), kind)]
        return [s for s in found if id(s.optimizer) in mine]

    def weighted(self) -> list[tuple[str, nn.Module]]:
        """Return name and module of all layers with a weight matrix, in the order of definition."""
        found = []
        for name, module in self.model.named_modules():
            weight = getattr(module, "weight", None)
            if isinstance(weight, nn.Parameter) and weight.dim() > 1 and weight.requires_grad:
                found.append((name, module))
        if len(found) < 2:
            message = "fewer than two layers with a trainable weight matrix"
            raise NotApplicable(message)
        return found

    def patch(self, owner: Any, name: str, value: Any, *, inside: bool = False) -> None:
        """Set an attribute of a class or module until the program returns (or leaves its block)."""
        old = owner.__dict__.get(name, self)
        setattr(owner, name, value)
        stack = self.undo_inside if inside else self.undo
        if old is self:
            stack.callback(delattr, owner, name)
        else:
            stack.callback(setattr, owner, name, old)

    def around(self, module: nn.Module, call: Callable[..., Any]) -> None:
        """Replace calls of one module, its hooks within, by `call(original, *args, **kwargs)`."""
        kind = type(module)

        def outer(_: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return call(lambda *a, **k: kind.__call__(module, *a, **k), *args, **kwargs)

        body = {"__call__": outer, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
        module.__class__ = type(kind.__name__, (kind,), body)
        self.undo.callback(setattr, module, "__class__", kind)

    def on_batch(self, change: Change, *, evaluation: bool = False) -> None:
        """Let `change(step, args, kwargs)` alter what enters the model on training steps."""

        def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled() or evaluation:
                args, kwargs = change(self.steps, args, kwargs)
            return original(*args, **kwargs)

        self.around(self.model, call)

    def on_floats(
        self, change: Callable[[int, torch.Tensor], torch.Tensor], **options: Any
    ) -> None:
        """Like `on_batch`, for each floating-point tensor among the arguments, on a copy of it."""

        def each(step: int, args: Any, kwargs: Any) -> Any:
            def one(x: Any) -> Any:
                plain = isinstance(x, torch.Tensor) and x.is_floating_point()
                return change(step, x.clone()) if plain else x

            return tuple(map(one, args)), {k: one(x) for k, x in kwargs.items()}

        self.on_batch(each, **options)


@dataclass
class Session:
    """The tool's session with the operator's second half around its block."""

    tool: Any
    run: Run
    operator: ModuleType
    truth: Truth

    def __enter__(self) -> Any:
        """Open the tool, then let the operator act."""
        opened = self.tool.__enter__()
        inside = getattr(self.operator, "inside", None)
        if inside is not None:
            self.truth.update(inside(self.run) or {})
        return opened

    def __exit__(self, *error: object) -> Any:
        """Take the operator's patches off, then close the tool."""
        self.run.undo_inside.close()
        return self.tool.__exit__(*error)


def train_with(
    operator: ModuleType, train: Any, watch: Any, *, seed: int = 0, severity: float = 1.0
) -> tuple[dict[str, Any], Truth]:
    """Run `train` with the operator's fault in it; return its result and the fault's truth.

    Raises:
        NotApplicable: The program has no place for this fault.
    """
    truth: Truth = {"failures": operator.FAILURES, "causes": operator.CAUSES}
    truth |= {"layers": [], "onset": None}
    runs: list[Run] = []

    def watched(models: Any, **options: Any) -> Session:
        model = next(iter(models.values())) if isinstance(models, dict) else models
        run = Run(model, severity)
        runs.append(run)
        count = register_optimizer_step_post_hook(lambda *_: setattr(run, "steps", run.steps + 1))
        run.undo.callback(count.remove)
        before = getattr(operator, "before", None)
        if before is not None:
            truth.update(before(run) or {})
        return Session(watch(models, **options), run, operator, truth)

    try:
        return train(watched, seed=seed), truth
    finally:
        for run in runs:
            run.undo_inside.close()
            run.undo.close()
