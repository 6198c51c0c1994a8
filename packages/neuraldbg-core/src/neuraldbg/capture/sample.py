# SPDX-License-Identifier: MIT
"""A small fixed sample of a tensor: some rows times the same units, every time.

`plan` decides once per shape which elements are taken; `take` copies them with one strided copy,
without a synchronisation. Rows are (sample, position) pairs, units are features or channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

ROWS = 32
"""Rows per layer. Heuristic: a unit active on 10 % of rows is seen with probability 0.97."""
UNITS = 64
"""Units per layer. Heuristic: a share of units is known within +-0.12 (two standard errors)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to view a tensor of one shape and stride as its sample."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    rows: int
    units: int


@lru_cache(maxsize=4096)
def plan(shape: tuple[int, ...], stride: tuple[int, ...], unit_dim: int) -> Plan:
    """Choose rows evenly over the batch first, then over positions; units evenly.

    Args:
        shape: of the tensor, at least one dimension, no empty dimension.
        stride: of the tensor.
        unit_dim: which dimension holds units (negative counts from the end).
    """
    dims = len(shape)
    unit_dim %= dims
    order = [d for d in range(dims) if d != unit_dim]
    counts = dict.fromkeys(range(dims), 1)
    budget = ROWS
    if order:
        batch_share = ROWS if len(order) == 1 else ROWS // 2
        counts[order[0]] = min(shape[order[0]], batch_share)
        budget //= max(counts[order[0]], 1)
    for dim in order[1:]:
        counts[dim] = max(1, min(shape[dim], budget))
        budget //= counts[dim]
    if order and budget > 1:
        counts[order[0]] = min(shape[order[0]], counts[order[0]] * budget)
    counts[unit_dim] = min(shape[unit_dim], UNITS)
    size, strides, offset = [], [], 0
    for dim in [*order, unit_dim]:
        step = shape[dim] // counts[dim]
        size.append(counts[dim])
        strides.append(stride[dim] * step)
        offset += stride[dim] * (step // 2)
    rows = 1
    for dim in order:
        rows *= counts[dim]
    return Plan(tuple(size), tuple(strides), offset, rows, counts[unit_dim])


def take(tensor: torch.Tensor, chosen: Plan) -> torch.Tensor:
    """View the sample of `tensor`, `[..., units]`; no copy."""
    return tensor.as_strided(chosen.size, chosen.stride, tensor.storage_offset() + chosen.offset)
