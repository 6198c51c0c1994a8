# SPDX-License-Identifier: MIT
"""What enters the watched models: one row of figures per tensor argument."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from neuraldbg.capture import sample
from neuraldbg.capture.taps import is_plain, tensors_in
from neuraldbg.schema.facts import InputStat
from neuraldbg.schema.run import InputInfo

if TYPE_CHECKING:
    from neuraldbg.capture.readback import Readback

LIMIT = 8
"""Tensors per model that are measured."""


_COMPRESSED = frozenset((torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc))


class InputBoard:
    """Figures of the tensors that entered the models within one step.

    Several forwards within a step (accumulation, siamese calls, a discriminator on real and made
    up samples) are combined: extremes, flags and the spread between samples over all of them, mean
    and RMS averaged.
    """

    def __init__(self, readback: Readback) -> None:
        self.infos: list[InputInfo] = []
        self.is_deep = True
        self._readback = readback
        self._row_of: dict[str, int] = {}
        self._rows: list[list[np.ndarray]] = []

    def take(self) -> list[list[np.ndarray]]:
        """Return what was measured in the step, by row, for `combined`."""
        taken, self._rows = self._rows, [[] for _ in self._rows]
        return taken

    def observe(self, model: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Measure the tensors of one forward."""
        count = 0
        for key, value in [*enumerate(args), *kwargs.items()]:
            for position, tensor in enumerate(_tensors(value)):
                if count >= LIMIT:
                    return
                count += 1
                name = f"{model}:{key}" + (f".{position}" if position else "")
                self._add(name, model, tensor)

    def _add(self, name: str, model: str, tensor: torch.Tensor) -> None:
        row = self._row_of.get(name)
        if row is None:
            row = self._row_of[name] = len(self.infos)
            dtype = str(tensor.dtype).removeprefix("torch.")
            self.infos.append(
                InputInfo(name=name, model=model, shape=tuple(tensor.shape), dtype=dtype)
            )
            self._rows.append([])
        figures = np.full(len(InputStat), np.nan, dtype=np.float32)
        self._rows[row].append(figures)
        measure(tensor, figures, self._readback, deep=self.is_deep)


def batch_size(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Return the length of the first tensor that a forward received, in a batch's dict too.

    Returns:
        Samples, 0 where no tensor with a first axis was passed.
    """
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            found = [value]
        else:
            within = dict(value) if isinstance(value, Mapping) else value
            found = [t for t in pytree.tree_leaves(within) if isinstance(t, torch.Tensor)]
        for tensor in found:
            if tensor.dim() > 0:
                return int(tensor.shape[0])
    return 0


def combined(rows: list[list[np.ndarray]]) -> np.ndarray:
    """Return `[I, len(InputStat)]` float32 of a step whose figures have all been read."""
    if not rows:
        return np.full((0, len(InputStat)), np.nan, dtype=np.float32)
    unseen = np.full(len(InputStat), np.nan, dtype=np.float32)
    return np.stack([_joined(measured) if measured else unseen for measured in rows])


def _joined(measured: list[np.ndarray]) -> np.ndarray:
    old = measured[0]
    for seen, new in enumerate(measured[1:], 1):
        for column in (InputStat.MEAN, InputStat.RMS):
            new[column] = (old[column] * seen + new[column]) / (seen + 1)
        new[InputStat.MIN] = min(old[InputStat.MIN], new[InputStat.MIN])
        for column in (InputStat.MAX, InputStat.NAN, InputStat.INF):
            new[column] = max(old[column], new[column])
        new[InputStat.SAMPLE_SPREAD] = np.fmax(
            old[InputStat.SAMPLE_SPREAD], new[InputStat.SAMPLE_SPREAD]
        )
        old = new
    return old


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value] if _is_measurable(value) and value.dtype is not torch.bool else []
    return [t for t in tensors_in(value) if _is_measurable(t)]


def _is_measurable(t: torch.Tensor) -> bool:
    """Whether the tensor is real, not empty, and has data at all; of a sparse one, any stored."""
    return is_plain(stored := _stored(t)) and not t.is_complex() and stored.numel() > 0


def _stored(t: torch.Tensor) -> torch.Tensor:
    """Return the values that a sparse tensor stores; those of a dense one are itself."""
    if t.layout is torch.sparse_coo:
        return t.detach()._values()  # noqa: SLF001 - `values()` refuses what is not coalesced
    return t.detach().values() if t.layout in _COMPRESSED else t


def measure(tensor: torch.Tensor, row: np.ndarray, readback: Readback, *, deep: bool) -> None:
    """Fill `[len(InputStat)]`: exact extremes and flags, the last three from a sample.

    Of a sparse tensor they are those of the values that it stores, without spreads.
    """
    t = _stored(tensor).detach()
    if t.is_floating_point():
        wide = t if t.dtype in {torch.float32, torch.float64} else t.float()
        low, high = torch.aminmax(wide)
    else:
        wide = t.flatten()[:: max(1, t.numel() // 4096)].float()
        low, high = (extreme.float() for extreme in torch.aminmax(t))
    figures = torch.stack([wide.mean(), torch.linalg.vector_norm(wide), low, high])
    readback.read(figures, partial(_fill, row, wide.numel()))
    if t.is_floating_point() and deep and t.dim() >= 2:
        chosen = sample.plan(tuple(wide.shape), tuple(wide.stride()), 1 if t.dim() == 4 else -1)
        x = sample.take(wide, chosen).reshape(chosen.rows, chosen.units)
        readback.read(x, partial(_fill_spreads, row))


def _fill(row: np.ndarray, size: int, figures: torch.Tensor) -> None:
    mean, norm, low, high = figures.tolist()
    row[InputStat.MEAN], row[InputStat.RMS] = mean, norm / math.sqrt(size)
    row[InputStat.MIN], row[InputStat.MAX] = low, high
    row[InputStat.NAN] = float(math.isnan(low))
    row[InputStat.INF] = float(math.isinf(low) or math.isinf(high))


def _fill_spreads(row: np.ndarray, host: torch.Tensor) -> None:
    x = host.double().numpy()
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
