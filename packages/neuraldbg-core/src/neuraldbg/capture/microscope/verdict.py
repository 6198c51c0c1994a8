# SPDX-License-Identifier: MIT
"""What a birth of a non-finite value looks like, and small measurements on tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from neuraldbg.capture.ranks import part_of

NAN = 1
"""Flag: the tensor holds a NaN."""
POSITIVE = 2
"""Flag: the tensor holds +Inf."""
NEGATIVE = 4
"""Flag: the tensor holds -Inf."""
HALF = frozenset({torch.float16, torch.bfloat16})


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why an operation made a non-finite value out of finite ones.

    `operation` is the user's word (`log`, `sqrt`), `argument` the offending argument in words,
    `cause` an id of the vocabulary or None where several causes lead here, `confidence` how far
    the mechanism implies that cause.
    """

    operation: str
    mechanism: str
    argument: str
    cause: str | None = None
    confidence: float = 0.9
    figures: Mapping[str, float] = field(default_factory=dict)


def flags(tensor: Tensor) -> int:
    """Return which kinds of non-finite values `tensor` holds (NAN | POSITIVE | NEGATIVE).

    Reads every element (of a sharded tensor those of this rank); one device sync. Layouts without
    a reduction count as finite.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
        return 0
    values = part_of(tensor.detach())
    try:
        if values.layout is not torch.strided:
            values = values.coalesce().values() if values.is_sparse else values.values()
        if values.is_complex():
            values = torch.view_as_real(values)
        if bool(torch.isfinite(values.sum(dtype=torch.promote_types(values.dtype, torch.float32)))):
            return 0
        found = NAN if bool(torch.isnan(values).any()) else 0
        found |= POSITIVE if bool((values == torch.inf).any()) else 0
        return found | (NEGATIVE if bool((values == -torch.inf).any()) else 0)
    except (RuntimeError, TypeError, NotImplementedError):
        return 0


def words_of(found: int) -> str:
    """Return `nan`, `inf` or `-inf` for flags, the worst first."""
    if found & NAN:
        return "nan"
    return "inf" if found & POSITIVE else "-inf"


def count(mask: Tensor) -> int:
    """Return how many elements of a bool tensor are set (one sync)."""
    return int(mask.sum())


def extent(tensor: Tensor) -> dict[str, float]:
    """Return size, minimum and maximum over the finite values of `tensor`."""
    figures = {"size": float(tensor.numel())}
    values = tensor.detach()
    if values.is_complex() or values.numel() == 0:
        return figures
    finite = values[torch.isfinite(values)] if values.is_floating_point() else values
    if finite.numel():
        figures["minimum"] = float(finite.min())
        figures["maximum"] = float(finite.max())
    return figures


def amount(number: int, what: str, size: int) -> str:
    """Return `3 zeros of 32 values`.

    Example:
        >>> amount(1, "zero", 32)
        '1 zero of 32 values'
    """
    plural = what if number == 1 else (f"{what[:-1]}ies" if what.endswith("y") else f"{what}s")
    return f"{number} {plural} of {size} value{'' if size == 1 else 's'}"


def describe_nonfinite(tensor: Tensor) -> tuple[str, dict[str, float]]:
    """Return `2 nan of 128 values` and its figures for a tensor that is not finite."""
    nans = count(torch.isnan(tensor))
    infs = count(torch.isinf(tensor))
    parts = [f"{nans} nan"] if nans else []
    parts += [f"{infs} inf"] if infs else []
    figures = {"count": float(nans + infs), "nan": float(nans), "inf": float(infs)}
    size = tensor.numel()
    return f"{' and '.join(parts)} of {size} value{'' if size == 1 else 's'}", figures | extent(
        tensor
    )
