# SPDX-License-Identifier: MIT
"""One of several processes that train together: which one this is, and what ties it to the others.

Nothing here talks to another rank. A collective that one rank alone starts waits for ever, so
whatever runs a model again asks `alone` first.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from neuraldbg.capture.inert import NOTHING, Inert
from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.capture.segment import Segment

WRAPPERS = frozenset({"DistributedDataParallel", "DataParallel", "OptimizedModule"})
PERSISTENCE, WINDOW = 3, 8
"""Steps past the wrapper, of the last so many, before it is how the loop is written. Heuristic:
one-off passes, as to warm up or to look at something, are no fault."""


def place() -> tuple[int, int]:
    """Return the rank of this process and how many there are, (0, 1) where it is alone.

    The process group tells; before it is made, the variables that launchers set.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return _environment("RANK", 0), _environment("WORLD_SIZE", 1)


def _environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


def is_sharded(module: nn.Module) -> bool:
    """Whether a module is one of FSDP, of either generation."""
    names = {kind.__name__ for kind in type(module).__mro__}
    return not names.isdisjoint({"FSDPModule", "FullyShardedDataParallel"})


def kind_of(module: nn.Module) -> str:
    """Return the name of a module's class, without what `fully_shard` makes of it."""
    bases = type(module).__bases__
    if len(bases) == 2 and bases[0].__name__ == "FSDPModule":
        return bases[1].__name__
    return type(module).__name__


def alone(module: nn.Module) -> nn.Module | None:
    """Return the module to run again on this rank alone, without compilation; None: there is none.

    A replicated model is run without its wrapper. One whose parameters are gathered from other
    ranks, or whose normalisation adds up over them, cannot be.
    """
    while type(module).__name__ in WRAPPERS:
        inner = getattr(module, "module", None) or getattr(module, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            return None
        module = inner
    return None if any(map(_is_joint, module.modules())) else module


def _is_joint(module: nn.Module) -> bool:
    if is_sharded(module) or isinstance(module, (nn.SyncBatchNorm, DistributedDataParallel)):
        return True
    return any(hasattr(p, "placements") for p in module._parameters.values())  # noqa: SLF001


def part_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this rank holds of a tensor: the plain tensor behind a DTensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def shard_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return (index, count): which part of a parameter this rank holds, (0, 1) for all of it.

    Ranks with the same index hold copies of the same part (HSDP).
    """
    placements, mesh = getattr(tensor, "placements", None), getattr(tensor, "device_mesh", None)
    if placements is None or mesh is None:
        return 0, 1
    here = mesh.get_coordinate()
    index, count = 0, 1
    for dimension, placement in enumerate(placements):
        if placement.is_shard() and here is not None:
            size = int(mesh.size(dimension))
            index, count = index * size + int(here[dimension]), count * size
    return index, count


class Calls:
    """A forward pre-hook of a wrapper: counts calls with gradients; inert in copies and pickles."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *_: Any) -> None:
        """Count a call; changes nothing."""
        if torch.is_grad_enabled():
            self.count += 1

    def __deepcopy__(self, memo: dict[int, Any]) -> Inert:
        return Inert()

    def __reduce__(self) -> tuple[Any, tuple[Any, str]]:
        return NOTHING


class Wrapping:
    """Watches that the forwards of a replicated model go through its wrapper.

    Called as `model.module(x)`, DDP never learns that a backward is coming and averages nothing:
    each rank trains a model of its own.
    """

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        self._models = list(models.values())
        self._handles: list[Any] = []
        self._calls = Calls()
        self._is_first = True
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._first = 0
        self._is_said = False

    def take(self, *, is_whole: bool) -> int | None:
        """Return how often wrappers were called up to the end of a step, None where none is known.

        A step that is no whole one (no backward, or no optimizer) does not start a new count.
        """
        is_first, self._is_first = self._is_first, False
        if is_first and not self._handles:
            self.attach()  # trainers make their wrappers only when they begin
            return None
        if not self._handles:
            return None
        count = self._calls.count
        self._calls.count = 0 if is_whole else count
        return count

    def inspect(self, label: int, step: Segment, calls: int | None) -> list[Observation]:
        """Look at a closed step, with the `calls` that were taken at its end."""
        if calls is None or not step.is_done or not step.backwards:
            return []
        is_past = calls == 0
        if is_past and not any(self._recent):
            self._first = label
        self._recent.append(is_past)
        if self._is_said or sum(self._recent) < PERSISTENCE:
            return []
        self._is_said = True
        figures = {"steps": float(sum(self._recent)), "confidence": 0.9}
        words = {"cause": "rank_divergence"}
        return [Observation("wrapper_bypassed", self._first, figures=figures, words=words)]

    def attach(self) -> None:
        """Find the wrappers of the models, whichever way they were made, and hook them."""
        if place()[1] < 2:
            return
        ours = {id(model) for model in self._models}
        for each in gc.get_objects():
            # By its real type: a proxy's `__class__` may run code.
            if not issubclass(type(each), DistributedDataParallel):
                continue
            wrapper = cast("DistributedDataParallel", each)
            if any(id(module) in ours for module in wrapper.modules()):
                self._handles.append(wrapper.register_forward_pre_hook(self._calls))

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
