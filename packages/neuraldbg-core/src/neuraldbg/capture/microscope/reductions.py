# SPDX-License-Identifier: MIT
"""Rules for reductions: rows, samples, targets and matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.microscope.arguments import MEAN, argument, numbers, overflow
from neuraldbg.capture.microscope.verdict import NEGATIVE, Verdict, count, extent, flags

if TYPE_CHECKING:
    from collections.abc import Sequence


def softmax(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge rows of which every entry is -Inf: the row's softmax is 0/0."""
    x = argument(arguments, 0)
    dim = next((a for a in arguments[1:] if isinstance(a, int) and not isinstance(a, bool)), -1)
    if x is not None:
        if flags(x) & ~NEGATIVE:
            return None
        rows = (x == -torch.inf).all(dim) if x.dim() else x == -torch.inf
    elif out is not None:
        rows = torch.isnan(out).all(dim) if out.dim() else torch.isnan(out)
    else:
        return None
    if not (number := count(rows)):
        return None
    operation = name.lstrip("_").removesuffix("_data")
    words = f"{operation} received {number} of {rows.numel()} rows with every entry -inf (masked)"
    figures = {"count": float(number), "size": float(rows.numel())}
    return Verdict(operation, "fully_masked_row", words, "fully_masked_attention", 0.9, figures)


def attention(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge fused attention: a mask row without one open position."""
    for value in arguments[3:]:
        mask = value if isinstance(value, Tensor) else None
        if mask is None:
            continue
        closed = ~mask if mask.dtype is torch.bool else mask == -torch.inf
        if number := count(closed.all(-1)):
            rows = mask.numel() // max(1, mask.shape[-1])
            words = f"attention received {number} of {rows} mask rows with no open position"
            figures = {"count": float(number), "size": float(rows)}
            return Verdict(
                "scaled_dot_product_attention",
                "fully_masked_row",
                words,
                "fully_masked_attention",
                0.9,
                figures,
            )
    return overflow(name, arguments, out)


def deviation(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge std and var with no degree of freedom left."""
    x = argument(arguments, 0)
    if x is None or out is None:
        return None
    samples = x.numel() // max(1, out.numel())
    if samples > 1:
        return overflow(name, arguments, out)
    operation = name.partition("_")[0]
    noun = "sample" if samples == 1 else "samples"
    words = f"{operation} was taken over {samples} {noun} (shape {tuple(x.shape)})"
    figures = {"count": float(out.numel()), "samples": float(samples), "size": float(x.numel())}
    return Verdict(operation, "single_sample", words, "single_sample_statistics", 0.95, figures)


def mean(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge the mean of nothing."""
    x = argument(arguments, 0)
    if x is None or x.numel():
        return overflow(name, arguments, None)
    words = f"{name} was taken over an empty tensor of shape {tuple(x.shape)}"
    return Verdict(
        name, "mean_of_nothing", words, "division_by_zero", 0.7, {"count": 1.0, "size": 0.0}
    )


def loss_mean(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge a loss averaged over no element (a sum over none is 0)."""
    x = argument(arguments, 0)
    if x is None:
        return None
    if x.numel() or next(iter(numbers(arguments[2:])), MEAN) != MEAN:
        return overflow(name, arguments, out) if x.numel() and out is not None else None
    words = f"{name} averages over an empty tensor of shape {tuple(x.shape)}"
    figures = {"count": 1.0, "size": 0.0}
    return Verdict(name, "mean_of_nothing", words, "degenerate_targets", 0.7, figures)


def nll(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge a negative log likelihood whose total weight is 0: every target is ignored."""
    target = argument(arguments, 1)
    if target is None:
        return None
    total = next((a for a in arguments[2:] if isinstance(a, Tensor) and a.dim() == 0), None)
    reduction, ignore = (MEAN, -100, *numbers(arguments[2:]))[-2:]
    ignored = count(target == ignore)
    if reduction == MEAN and (
        (total is not None and float(total) == 0) or ignored == target.numel()
    ):
        words = f"all {target.numel()} targets are ignored or weigh 0: the mean is 0/0"
        figures = {"count": float(target.numel()), "size": float(target.numel())}
        return Verdict("cross_entropy", "zero_by_zero", words, "degenerate_targets", 0.9, figures)
    return overflow(name, arguments, out) if out is not None else None


def ctc(_name: str, _arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge CTC: an Inf loss means a target that the input is too short to produce."""
    if out is None or not (number := count(torch.isinf(out))):
        return None
    words = (
        f"ctc_loss cannot align {number} of {out.numel()} targets: longer, with the blanks between "
        "repeats, than their inputs"
    )
    figures = {"count": float(number), "size": float(out.numel())}
    return Verdict("ctc_loss", "infeasible_target", words, "infeasible_target", 0.95, figures)


def normalization(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge a normalisation with eps 0 over values that are all the same."""
    x = argument(arguments, 0)
    if x is None or flags(x):
        return None
    operation = name.removeprefix("native_").removeprefix("_")
    if float(x.abs().max()) > torch.finfo(x.dtype).max ** 0.5:
        return overflow(operation, arguments, out)
    words = f"{operation} divides by a standard deviation of 0 (constant values, eps 0)"
    return Verdict(operation, "division_by_zero", words, "division_by_zero", 0.7, extent(x))


def determinant(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge matrix functions of a singular matrix."""
    x = argument(arguments, 0)
    size = tuple(x.shape) if x is not None else ()
    words = f"{name.lstrip('_')} received a singular matrix {size}"
    return Verdict(name.lstrip("_"), "singular_matrix", words, None, 0.5, {"count": 1.0})
