# SPDX-License-Identifier: MIT
"""One forward pass again, with figures of what every layer read and gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_unflatten

from neuraldbg.capture.objective.isolation import untouched

if TYPE_CHECKING:
    from neuraldbg.capture.objective.evidence import Watch

CHANGED = 1e-3
"""Change of an output, in its standard deviations, that counts. Heuristic: rounding in half
precision stays below, and one of a hundred attended samples above."""


Slicer = Callable[[torch.Tensor], torch.Tensor | None]


@dataclass(slots=True)
class Run:
    """One forward: its output, and figures of what each layer read and gave, for what must hold."""

    outputs: list[torch.Tensor] = field(default_factory=list)
    layers: dict[str, torch.Tensor] = field(default_factory=dict)
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    """Size of dimension 0 of what each layer of three or more dimensions gave."""


@dataclass(slots=True)
class Repeat:
    """A model and the inputs it received, ready to run again."""

    model: nn.Module
    leaves: list[Any]
    spec: Any
    dtype: torch.dtype | None
    prefix: str

    def run(self, leaves: list[Any], kept: Slicer, watch: Watch | None = None) -> Run:
        """Run the model on `leaves`; keep figures of what `kept` selects of every layer."""
        done = Run()
        own = [t.detach().clone() if isinstance(t, torch.Tensor) else t for t in leaves]
        args, kwargs = tree_unflatten(own, self.spec)
        with untouched(self.model), _autocast(leaves, self.dtype):
            handles = [
                module.register_forward_hook(self._hook(name, done, kept))
                for name, module in self.model.named_modules()
                if name
            ]
            if watch is None:
                output = self.model(*args, **kwargs)
            else:
                with watch:
                    output = self.model(*args, **kwargs)
            for handle in handles:
                handle.remove()
        done.outputs = [t for t in tensors(output) if t.is_floating_point()]
        return done

    def _hook(self, name: str, done: Run, kept: Slicer) -> Callable[..., None]:
        def hook(_module: nn.Module, given: Any, output: Any) -> None:
            for store, value in ((done.layers, output), (done.inputs, given)):
                first = next((t for t in tensors(value) if t.is_floating_point()), None)
                part = None if first is None else kept(first)
                if part is not None and name not in store:
                    store[name] = _figures(part)
                    if store is done.layers and first is not None and first.ndim > 2:
                        done.first[name] = first.shape[0]

        return hook

    def blame(self, before: Run, after: Run) -> str | None:
        """Return the first layer, in the order of execution, that shows the change.

        Where what it read had changed already, code between the layers did it: then the module
        whose forward that is.
        """
        for name, old in before.layers.items():
            new = after.layers.get(name)
            if new is None or not differs(old, new):
                continue
            had = name in before.inputs and name in after.inputs
            if had and differs(before.inputs[name], after.inputs[name]):
                container = self._container(name)
                return self._path(container) if container else self._path(name)
            return self._path(name)
        return None

    def _container(self, name: str) -> str:
        modules = dict(self.model.named_modules())
        name = name.rpartition(".")[0]
        while name and isinstance(modules[name], (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
            name = name.rpartition(".")[0]
        return name

    def _path(self, name: str) -> str:
        return f"{self.prefix}.{name}" if self.prefix else name

    def kind(self, path: str | None) -> str:
        """Return the class of the module at `path`."""
        name = (path or "").removeprefix(self.prefix + "." if self.prefix else "")
        return type(dict(self.model.named_modules()).get(name)).__name__


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a nested structure."""
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def _figures(part: torch.Tensor) -> torch.Tensor:
    """Return sum and sum of squares for each row of dimension 0, `[N, 2]` float64."""
    flat = part.detach().reshape(part.shape[0], -1).double()
    return torch.stack([flat.sum(1), (flat * flat).sum(1)], 1)


def differs(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Return whether two layers' figures differ by more than rounding does."""
    if old.shape != new.shape:
        return False
    scale = old.abs().mean() + 1e-12
    return bool(((old - new).abs() > 0.1 * CHANGED * scale).any())


def _autocast(leaves: list[Any], dtype: torch.dtype | None) -> Any:
    device = next((t.device.type for t in leaves if isinstance(t, torch.Tensor)), "cpu")
    return torch.autocast(device, dtype=dtype, enabled=dtype is not None)


def change_of(old: list[torch.Tensor], new: list[torch.Tensor], kept: Slicer) -> float:
    """Return the largest change of what `kept` selects, in standard deviations of the output."""
    worst = 0.0
    for a, b in zip(old, new, strict=False):
        part, other = kept(a), kept(b)
        if part is None or other is None or part.shape != other.shape or not part.numel():
            continue
        spread = float(a.float().std()) if a.numel() > 1 else 0.0
        gap = float((part.float() - other.float()).abs().nan_to_num().max())
        worst = max(worst, gap / (spread + 1e-6))
    return worst
