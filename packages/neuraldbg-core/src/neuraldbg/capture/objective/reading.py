# SPDX-License-Identifier: MIT
"""Figures from tensors that the graph saved: a few rows of each, no graph, no random numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.objective.tape import NONE

if TYPE_CHECKING:
    from neuraldbg.capture.objective.tape import Tape

ROWS = 64
"""Rows of a saved tensor that are looked at. Heuristic: enough to tell what they are."""
UNSIGNED = 1 << 64


def signed(value: Any) -> int | None:
    """Return a saved integer with its sign: torch hands out -1 as 18446744073709551615."""
    if not isinstance(value, int):
        return None
    return value - UNSIGNED if value >= UNSIGNED >> 1 else value


def axis(saved_dim: Any, ndim: int) -> int | None:
    """Return a saved dimension as 0..ndim-1, None where it is not one."""
    dim = signed(saved_dim)
    if dim is None or not -ndim <= dim < max(ndim, 1):
        return None
    return dim % ndim if ndim else 0


def rows(tensor: Any, *, limit: int = ROWS) -> torch.Tensor | None:
    """Return up to `limit` evenly spaced rows of dimension 0, detached, as float32.

    None where the tensor is none, empty, complex, or of a layout that cannot be sliced.
    """
    if not isinstance(tensor, torch.Tensor) or not tensor.numel() or tensor.is_complex():
        return None
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    with torch.no_grad():
        plain = tensor.detach()
        if plain.ndim and plain.shape[0] > limit:
            plain = plain[:: math.ceil(plain.shape[0] / limit)]
        return plain.float()


def scalar(value: Any) -> float | None:
    """Return a number that was a constant of the user's code, without asking an accelerator."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, torch.Tensor) and value.numel() == 1 and value.device.type == "cpu":
        return float(value.detach())
    return None


def multiple(tape: Tape, place: int) -> tuple[int, float] | None:
    """Read a product with, or a quotient by, one number other than 0.

    Returns:
        (place among its inputs of what the node is a multiple of, that multiple); None: it is no
        such node, or the number is not known.
    """
    name, below = tape.names[place], tape.inputs[place]
    if name not in {"Mul", "Div"} or len(below) != 2 or below.count(NONE) != 1:
        return None
    at = int(below[0] == NONE)
    by = scalar(tape.saved(place, "self" if at else "other"))
    if not by or (at and name == "Div"):
        return None
    return at, by if name == "Mul" else 1 / by


def is_distribution(values: torch.Tensor, dim: int) -> bool:
    """Return whether `values` are in [0, 1] and sum to 1 along `dim`."""
    if values.ndim <= dim or values.shape[dim] < 2:
        return False
    low, high = (float(v) for v in torch.aminmax(values))
    total = values.sum(dim)
    return low >= 0 and high <= 1 + 1e-4 and bool(((total - 1).abs() < 1e-2).all())


def is_log_distribution(values: torch.Tensor, dim: int) -> bool:
    """Return whether exp of `values` sums to 1 along `dim`, within what half precision allows.

    True where NaN or Inf stand in the way: then nothing is known against it.
    """
    return not bool((values.logsumexp(dim).abs() >= 3e-2).any())
