# SPDX-License-Identifier: MIT
"""From the board's raw rows to `[L, ActivationStat]`: a handful of batched operations per step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from neuraldbg.capture import sample
from neuraldbg.capture.taps import COUNT, INPUT_NORM, INPUT_SIZE, MAX, MIN, NORM, SIZE, SUM, Board
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerInfo, LayerRole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from neuraldbg.capture.readback import Readback

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


class _Kinds(NamedTuple):
    """What is known of each layer's activation function, `[L]` bool each."""

    has_flat: np.ndarray
    is_rectifier: np.ndarray
    is_softmax: np.ndarray


class Reducer:
    """Turns a `Board` into the activation array; keeps how long each unit has been silent."""

    def __init__(self, board: Board, readback: Readback) -> None:
        self.board, self._readback = board, readback
        self._silence = torch.zeros((len(board.calls), sample.UNITS), device=board.figures.device)
        self.configure([])

    def follow(self, layers: Sequence[LayerInfo]) -> None:
        """The board has moved to another device."""
        self._silence = self._silence.to(self.board.figures.device)
        self.configure(layers)

    def configure(self, layers: Sequence[LayerInfo]) -> None:
        """Learn each layer's activation function (known once the first step was audited)."""
        count, device = len(self.board.calls), self.board.figures.device
        low, high = np.full(count, -_INFINITY), np.full(count, _INFINITY)
        self._kinds = kinds = _Kinds(*np.zeros((3, count), dtype=bool))
        for row, info in enumerate(layers):
            flat = FLAT.get(info.activation or "")
            kinds.is_softmax[row] = (
                info.activation == "softmax" and info.role is LayerRole.ACTIVATION
            )
            kinds.has_flat[row] = flat is not None
            kinds.is_rectifier[row] = info.activation in _RECTIFIERS
            if flat is not None:
                low[row], high[row] = flat[:2] if info.is_flat_on_output else flat[2:]
        limits = torch.from_numpy(np.stack([low, high])).float().to(device)
        self._low, self._high = limits[:, :, None, None]

    def reduce(self, *, with_samples: bool, then: Callable[[np.ndarray], None]) -> None:
        """Give `[L, len(ActivationStat)]` float32 of the step to `then`; one transfer.

        Args:
            with_samples: also reduce the samples (shares, spread, cosine, rank).
            then: is called at once, or when the figures have come from the device.
        """
        board = self.board
        calls = np.asarray(board.calls, dtype=np.float32)
        if not (board.is_on or board.is_compiled):
            self._readback.then(lambda: then(_uncounted(calls)))
            return
        parts = [board.figures]
        if with_samples:
            parts.append(self._reduce_samples())
        kinds = self._kinds if board.is_on else None
        counted = board.is_compiled

        def finish(host: torch.Tensor) -> None:
            then(_finished(host.numpy(), calls, kinds, is_counted=counted))

        self._readback.read(torch.cat(parts, dim=1), finish)

    def _reduce_samples(self) -> torch.Tensor:
        """Return `[L, 8]`: zero, flat, silent, spread, cosine, rank, row max, confident rows."""
        rows_used, units_used = self.board.extent
        if self.board.is_compiled:  # its samples are of any extent
            rows_used, units_used = sample.ROWS, sample.UNITS
        s = self.board.samples[:, :rows_used, :units_used]
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
        silence = self._silence[:, :units_used]
        silence.copy_(torch.where(silent_now, silence + 1, torch.zeros_like(silence)))
        silent = (silence >= SILENT_AFTER).sum(1) / units
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


def _uncounted(calls: np.ndarray) -> np.ndarray:
    """Return the array of a step of which only the calls are known."""
    out = np.full((len(calls), len(ActivationStat)), np.nan, dtype=np.float32)
    out[:, ActivationStat.CALLS] = calls
    return out


def _finished(
    host: np.ndarray, calls: np.ndarray, kinds: _Kinds | None, *, is_counted: bool
) -> np.ndarray:
    """Return `[L, len(ActivationStat)]` from the board's rows, and the reduced samples beside them.

    Args:
        host: `[L, 8]`, or `[L, 16]` with samples.
        calls: that Python counted.
        kinds: None where no tap ran.
        is_counted: whether compiled code counted more calls.
    """
    out = _uncounted(calls + host[:, COUNT] if is_counted else calls)
    if kinds is None:
        return out
    with np.errstate(all="ignore"):
        size = host[:, SIZE]
        out[:, ActivationStat.MEAN] = host[:, SUM] / size
        out[:, ActivationStat.RMS] = host[:, NORM] / np.sqrt(size)
        out[:, ActivationStat.MIN] = host[:, MIN]
        out[:, ActivationStat.MAX] = host[:, MAX]
        finite = np.isfinite(host[:, MIN]) & np.isfinite(host[:, MAX])
        out[:, ActivationStat.NONFINITE] = np.where(np.isnan(size), np.nan, ~finite)
        out[:, ActivationStat.INPUT_RMS] = host[:, INPUT_NORM] / np.sqrt(host[:, INPUT_SIZE])
    if host.shape[1] > 8:
        out[:, ActivationStat.ZERO_SHARE : ActivationStat.INPUT_RMS] = host[:, 8:14]
        out[:, ActivationStat.ROW_MAX] = host[:, 14]
        soft = kinds.is_softmax
        out[soft, ActivationStat.FLAT_SHARE] = host[soft, 15]
        out[~(kinds.has_flat | soft), ActivationStat.FLAT_SHARE] = np.nan
        out[~kinds.is_rectifier, ActivationStat.SILENT_SHARE] = np.nan
    out[~(out[:, ActivationStat.CALLS] > 0), 1:] = np.nan
    return out
