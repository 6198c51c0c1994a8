# SPDX-License-Identifier: MIT
"""Reading the arguments of an operation, and the judgement that needs no more: overflow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.microscope.verdict import Verdict, count

if TYPE_CHECKING:
    from collections.abc import Sequence


def as_tensor(value: Any) -> Tensor | None:
    """Return numbers as tensors, tensors as they are, anything else as None."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return torch.tensor(float(value))
    return None


MEAN = 1
"""`reduction="mean"` as aten writes it."""


def numbers(arguments: Sequence[Any]) -> list[int]:
    """Return the whole numbers among arguments: dimensions, reductions, indices."""
    return [a for a in arguments if isinstance(a, int) and not isinstance(a, bool)]


def argument(arguments: Sequence[Any], place: int) -> Tensor | None:
    """Return one argument as a tensor, None where it is missing."""
    return as_tensor(arguments[place]) if place < len(arguments) else None


def overflow(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge a result above the dtype's range; the largest argument says how far it had grown."""
    tensors = [
        a for a in arguments if isinstance(a, Tensor) and a.is_floating_point() and a.numel()
    ]
    dtype = out.dtype if out is not None else (tensors[0].dtype if tensors else None)
    if dtype is None or not dtype.is_floating_point:
        return None
    largest = max((float(t.detach().abs().amax()) for t in tensors), default=math.nan)
    limit = torch.finfo(dtype).max
    number = count(~torch.isfinite(out)) if out is not None else 1
    if out is not None and tensors and not count(torch.isinf(out)):
        is_modest = largest**2 * max(t.numel() for t in tensors) < limit
    else:
        is_modest = False
    if is_modest:
        words = f"{name} made {number} nan of finite arguments, the largest {largest:.4g}"
        return Verdict(
            name, "undefined", words, None, 0.3, {"count": float(number), "maximum": largest}
        )
    words = (
        f"the result of {name} left the range of {str(dtype)[6:]} ({limit:.4g}) "
        f"in {number} values; "
        f"its largest argument was {largest:.4g}"
    )
    figures = {
        "count": float(number),
        "maximum": largest,
        "limit": limit,
        "size": float(out.numel()) if out is not None else math.nan,
    }
    if dtype is torch.float16:
        return Verdict(name, "half_overflow", words, "half_precision_overflow", 0.9, figures)
    return Verdict(name, "overflow", words, None, 0.5, figures)
