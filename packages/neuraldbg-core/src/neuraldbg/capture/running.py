# SPDX-License-Identifier: MIT
"""Running statistics of normalisation layers across passes without gradients in train mode."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch
from torch import nn

from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

MOST = 8
"""Layers that are followed: what enters the first ones is what the data does."""
APART = 1.0
"""Standard deviations by which the mean of any channel moved from which it is told. Heuristic: a
batch of the training data moves it by a tenth of its own noise (momentum 0.1)."""


class RunningStatistics:
    """Compares the running means before such passes with those that training goes on with."""

    def __init__(self) -> None:
        self._before: list[tuple[str, weakref.ref[nn.Module], Tensor, Tensor]] = []
        self._is_noted = False

    def note(self, name: str, model: nn.Module) -> None:
        """A pass without gradients begins in train mode; the first since the last step counts."""
        if self._is_noted:
            return
        self._is_noted = True
        for path, module in _tracking(name, model):
            mean, var = module.running_mean, module.running_var
            if isinstance(mean, torch.Tensor) and isinstance(var, torch.Tensor):
                kept = mean.detach().clone(), var.detach().clone()
                self._before.append((path, weakref.ref(module), *kept))
            if len(self._before) >= MOST:
                return

    def inspect(self, label: int) -> list[Observation]:
        """Training goes on after the step `label`; return what has moved too far, at most one."""
        before, self._before, self._is_noted = self._before, [], False
        worst, where = 0.0, ""
        for path, ref, mean, var in before:
            module = ref()
            now = None if module is None else getattr(module, "running_mean", None)
            if not isinstance(now, torch.Tensor) or now.shape != mean.shape:
                continue
            moved = float(((now - mean).abs() / (var + 1e-12).sqrt()).max())
            if moved > worst:
                worst, where = moved, path
        if not worst > APART:
            return []
        words = {"cause": "train_mode_in_eval"}
        return [Observation("statistics_moved", label, where, {"deviations": worst}, words)]


def _tracking(name: str, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, module in model.named_modules(prefix=name):
        is_norm = isinstance(module, nn.modules.batchnorm._NormBase)  # noqa: SLF001 - of all of them
        if is_norm and module.track_running_stats and module.training:
            yield path, module
