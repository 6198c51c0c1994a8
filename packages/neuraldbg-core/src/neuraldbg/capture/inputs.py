# SPDX-License-Identifier: MIT
"""What enters the watched models: one row of figures per tensor argument."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from neuraldbg.capture import sample
from neuraldbg.capture.taps import is_plain, tensors_in
from neuraldbg.schema.facts import InputStat
from neuraldbg.schema.run import InputInfo

LIMIT = 8
"""Tensors per model that are measured."""


class InputBoard:
    """Figures of the tensors that entered the models within one step.

    Several forwards within a step (accumulation, siamese calls, a discriminator on real and made
    up samples) are combined: extremes, flags and the spread between samples over all of them, mean
    and RMS averaged.
    """

    def __init__(self) -> None:
        self.infos: list[InputInfo] = []
        self.is_deep = True
        self._row_of: dict[str, int] = {}
        self._values: list[np.ndarray] = []
        self._counts: list[int] = []

    def clear(self) -> None:
        """Start a new step."""
        for value in self._values:
            value[:] = np.nan
        self._counts = [0] * len(self._counts)

    def values(self) -> np.ndarray:
        """Return `[I, len(InputStat)]` float32 of the step."""
        if not self._values:
            return np.full((0, len(InputStat)), np.nan, dtype=np.float32)
        return np.stack(self._values).copy()

    def observe(self, model: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Measure the tensors of one forward; return whether all of them were finite."""
        finite, count = True, 0
        for key, value in [*enumerate(args), *kwargs.items()]:
            for position, tensor in enumerate(_tensors(value)):
                if count >= LIMIT:
                    return finite
                count += 1
                name = f"{model}:{key}" + (f".{position}" if position else "")
                finite &= self._add(name, model, tensor)
        return finite

    def _add(self, name: str, model: str, tensor: torch.Tensor) -> bool:
        row = self._row_of.get(name)
        if row is None:
            row = self._row_of[name] = len(self.infos)
            dtype = str(tensor.dtype).removeprefix("torch.")
            self.infos.append(
                InputInfo(name=name, model=model, shape=tuple(tensor.shape), dtype=dtype)
            )
            self._values.append(np.full(len(InputStat), np.nan, dtype=np.float32))
            self._counts.append(0)
        new = measure(tensor, deep=self.is_deep)
        old, seen = self._values[row], self._counts[row]
        self._counts[row] = seen + 1
        if seen:
            for column in (InputStat.MEAN, InputStat.RMS):
                new[column] = (old[column] * seen + new[column]) / (seen + 1)
            new[InputStat.MIN] = min(old[InputStat.MIN], new[InputStat.MIN])
            for column in (InputStat.MAX, InputStat.NAN, InputStat.INF):
                new[column] = max(old[column], new[column])
            new[InputStat.SAMPLE_SPREAD] = np.fmax(
                old[InputStat.SAMPLE_SPREAD], new[InputStat.SAMPLE_SPREAD]
            )
        self._values[row] = new
        return not (new[InputStat.NAN] or new[InputStat.INF])


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value] if _is_measurable(value) and value.dtype is not torch.bool else []
    return [t for t in tensors_in(value) if _is_measurable(t)]


def _is_measurable(t: torch.Tensor) -> bool:
    """Whether the tensor is dense, real, not empty, and has data at all."""
    return is_plain(t) and not t.is_complex() and t.numel() > 0


def measure(tensor: torch.Tensor, *, deep: bool) -> np.ndarray:
    """Return `[len(InputStat)]` float32; exact extremes and flags, the last three from a sample."""
    row = np.full(len(InputStat), np.nan, dtype=np.float32)
    t = tensor.detach()
    if not t.is_floating_point():
        low, high = torch.aminmax(t)
        row[InputStat.MIN], row[InputStat.MAX] = float(low), float(high)
        row[InputStat.NAN] = row[InputStat.INF] = 0.0
        t = t.flatten()[:: max(1, t.numel() // 4096)].float()
        row[InputStat.MEAN] = float(t.mean())
        row[InputStat.RMS] = float(torch.linalg.vector_norm(t)) / math.sqrt(t.numel())
        return row
    wide = t if t.dtype in {torch.float32, torch.float64} else t.float()
    low, high = torch.aminmax(wide)
    norm = torch.linalg.vector_norm(wide)
    figures = torch.stack([wide.mean(), norm, low, high]).tolist()
    row[InputStat.MEAN], row[InputStat.RMS] = figures[0], figures[1] / math.sqrt(t.numel())
    row[InputStat.MIN], row[InputStat.MAX] = figures[2], figures[3]
    row[InputStat.NAN] = float(math.isnan(figures[2]))
    row[InputStat.INF] = float(math.isinf(figures[2]) or math.isinf(figures[3]))
    if deep and t.dim() >= 2:
        _deep(row, wide)
    return row


def _deep(row: np.ndarray, t: torch.Tensor) -> None:
    chosen = sample.plan(tuple(t.shape), tuple(t.stride()), 1 if t.dim() == 4 else -1)
    x = sample.take(t, chosen).reshape(chosen.rows, chosen.units).to("cpu", torch.float64).numpy()
    if len(x) < 4 or not np.isfinite(x).all():
        return  # spreads of what is not finite say nothing; NaN stands for "not measured"
    with np.errstate(all="ignore"):
        deviation = x.std(axis=0)
        size = np.sqrt(np.mean(x**2))
        live = deviation[deviation > 1e-12 * max(size, 1e-30)]
        if len(live):
            row[InputStat.FEATURE_SPREAD] = live.max() / live.min()
        row[InputStat.CONSTANT_SHARE] = 1.0 - len(live) / x.shape[1]
        row[InputStat.SAMPLE_SPREAD] = deviation.mean() / size if size > 0 else 0.0
