# SPDX-License-Identifier: MIT
"""From the board's raw rows to `[L, ActivationStat]`: a handful of batched operations per step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from neuraldbg.capture import sample
from neuraldbg.capture.taps import COUNT, INPUT_NORM, INPUT_SIZE, MAX, MIN, NORM, SIZE, SUM, Board
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerInfo, LayerRole

if TYPE_CHECKING:
    from collections.abc import Sequence

SILENT_AFTER = 4
"""Reductions for which a unit must be silent to count. Heuristic: 4 x 32 rows without a single
activation; a unit active on 5 % of rows passes for silent with probability 0.001."""

_INFINITY = math.inf
FLAT: dict[str, tuple[float, float, float, float]] = {
    # activation: (output low, output high, input low, input high): outside is flat, where the
    # derivative is below 1 % of its peak. Computed from the definitions; docs/saturation.md.
    "relu": (0.0, _INFINITY, 0.0, _INFINITY),
    "relu6": (0.0, 6.0, 0.0, 6.0),
    "hardtanh": (-1.0, 1.0, -1.0, 1.0),
    "hardsigmoid": (0.0, 1.0, -3.0, 3.0),
    "sigmoid": (0.002506, 0.997494, -5.98645, 5.98645),
    "tanh": (-0.994987, 0.994987, -2.99322, 2.99322),
    "softsign": (-0.9, 0.9, -9.0, 9.0),
    "softplus": (0.01005, _INFINITY, -4.5951, _INFINITY),
    "logsigmoid": (-_INFINITY, -0.01005, -_INFINITY, 4.5951),
    "gelu": (-_INFINITY, _INFINITY, -3.02167, _INFINITY),
    "silu": (-_INFINITY, _INFINITY, -6.14292, _INFINITY),
    "mish": (-_INFINITY, _INFINITY, -6.15875, _INFINITY),
    "hardswish": (-_INFINITY, _INFINITY, -3.0, _INFINITY),
    "elu": (-0.99, _INFINITY, -4.60517, _INFINITY),
    "selu": (-1.740519, _INFINITY, -4.60517, _INFINITY),
}
_RECTIFIERS = frozenset({"relu", "relu6", "hardtanh"})


class Reducer:
    """Turns a `Board` into the activation array; keeps how long each unit has been silent."""

    def __init__(self, board: Board) -> None:
        self.board = board
        layers = board.figures.shape[0]
        self._low = torch.full((layers, 1, 1), -_INFINITY, device=board.figures.device)
        self._high = torch.full((layers, 1, 1), _INFINITY, device=board.figures.device)
        self._has_flat = np.zeros(layers, dtype=bool)
        self._is_rectifier = np.zeros(layers, dtype=bool)
        self._is_softmax = np.zeros(layers, dtype=bool)
        self._silence = torch.zeros((layers, sample.UNITS), device=board.figures.device)

    def configure(self, layers: Sequence[LayerInfo]) -> None:
        """Learn each layer's activation function (known once the first step was audited)."""
        for row, info in enumerate(layers):
            flat = FLAT.get(info.activation or "")
            self._is_softmax[row] = (
                info.activation == "softmax" and info.role is LayerRole.ACTIVATION
            )
            self._has_flat[row] = flat is not None
            self._is_rectifier[row] = info.activation in _RECTIFIERS
            if flat is not None:
                low, high = flat[:2] if info.is_flat_on_output else flat[2:]
                self._low[row], self._high[row] = low, high

    def reduce(self, *, with_samples: bool) -> np.ndarray:
        """Return `[L, len(ActivationStat)]` float32 of the step; one transfer from the device.

        Args:
            with_samples: also reduce the samples (shares, spread, cosine, rank).
        """
        board = self.board
        out = np.full((len(board.calls), len(ActivationStat)), np.nan, dtype=np.float32)
        calls = np.asarray(board.calls, dtype=np.float32)
        if board.is_compiled:
            calls += board.figures[:, COUNT].cpu().numpy()
        out[:, ActivationStat.CALLS] = calls
        if not board.is_on:
            return out
        ran = calls > 0
        parts = [board.figures]
        if with_samples:
            parts.append(self._reduce_samples())
        host = torch.cat(parts, dim=1).cpu().numpy()
        with np.errstate(all="ignore"):
            size = host[:, SIZE]
            out[:, ActivationStat.MEAN] = host[:, SUM] / size
            out[:, ActivationStat.RMS] = host[:, NORM] / np.sqrt(size)
            out[:, ActivationStat.MIN] = host[:, MIN]
            out[:, ActivationStat.MAX] = host[:, MAX]
            finite = np.isfinite(host[:, MIN]) & np.isfinite(host[:, MAX])
            out[:, ActivationStat.NONFINITE] = np.where(np.isnan(size), np.nan, ~finite)
            out[:, ActivationStat.INPUT_RMS] = host[:, INPUT_NORM] / np.sqrt(host[:, INPUT_SIZE])
        if with_samples:
            out[:, ActivationStat.ZERO_SHARE : ActivationStat.INPUT_RMS] = host[:, 8:14]
            out[:, ActivationStat.ROW_MAX] = host[:, 14]
            soft = self._is_softmax
            out[soft, ActivationStat.FLAT_SHARE] = host[soft, 15]
            known = self._has_flat | soft
            out[~known, ActivationStat.FLAT_SHARE] = np.nan
            out[~self._is_rectifier, ActivationStat.SILENT_SHARE] = np.nan
        out[~ran, 1:] = np.nan
        return out

    def _reduce_samples(self) -> torch.Tensor:
        """Return `[L, 8]`: zero, flat, silent, spread, cosine, rank, row max, confident rows."""
        s = self.board.samples
        valid = ~s.isnan()
        x = torch.nan_to_num(s, nan=0.0, posinf=3e38, neginf=-3e38)
        mask = valid.to(x.dtype)
        count = mask.sum((1, 2)).clamp(min=1)
        rows = valid.any(2).sum(1).clamp(min=1).to(x.dtype)
        units = valid.any(1).sum(1).clamp(min=1).to(x.dtype)
        zero = ((x == 0) & valid).sum((1, 2)) / count
        flat_low = (x <= self._low) & valid
        flat = (flat_low | ((x >= self._high) & valid)).sum((1, 2)) / count
        is_unit = valid.any(1)
        silent_now = (flat_low | ~valid).all(1) & is_unit
        self._silence = torch.where(silent_now, self._silence + 1, torch.zeros_like(self._silence))
        silent = (self._silence >= SILENT_AFTER).sum(1) / units
        x = x.clamp(-1e18, 1e18)
        scale = x.abs().amax((1, 2), keepdim=True).clamp(min=1e-30)
        x = x / scale
        power = x.square().sum((1, 2)) / count
        mean = x.sum(1) / rows[:, None]
        centred = (x - mean[:, None, :]) * mask
        variance = centred.square().sum((1, 2)) / count
        spread = (variance / power.clamp(min=1e-20)).sqrt()
        length = x.square().sum(2).sqrt()
        direction = x / length.clamp(min=1e-12)[:, :, None]
        alive = (length > 1e-12).sum(1).to(x.dtype)
        cosine = (direction.sum(1).square().sum(1) - alive) / (alive * (alive - 1)).clamp(min=1)
        cosine = torch.where(alive >= 2, cosine, torch.full_like(cosine, float("nan")))
        gram = centred @ centred.transpose(1, 2)
        trace = gram.diagonal(dim1=1, dim2=2).sum(1)
        rank = trace.square() / gram.square().sum((1, 2)).clamp(min=1e-30)
        rank = torch.where(trace > 1e-12, rank, torch.ones_like(rank))
        top = torch.where(valid, x * scale, torch.full_like(x, -3e38)).amax(2)
        is_row = valid.any(2)
        row_max = torch.where(is_row, top, torch.zeros_like(top)).sum(1) / rows
        confident = ((top >= 0.997494) & is_row).sum(1) / rows
        return torch.stack([zero, flat, silent, spread, cosine, rank, row_max, confident], 1)
