# SPDX-License-Identifier: MIT
"""Rules for operations: which arguments make a finite value into a NaN or Inf, by operation name.

One table serves both ways in: operations seen in a re-run (arguments and output at hand) and
nodes of the autograd graph (what they saved). Missing arguments are None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from neuraldbg.capture.microscope.verdict import (
    NEGATIVE,
    Verdict,
    amount,
    count,
    extent,
    flags,
)

Rule = Callable[[str, Sequence[Any], Tensor | None], Verdict | None]


def as_tensor(value: Any) -> Tensor | None:
    """Return numbers as tensors, tensors as they are, anything else as None."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return torch.tensor(float(value))
    return None


MEAN = 1
"""`reduction="mean"` as aten writes it."""


def _numbers(arguments: Sequence[Any]) -> list[int]:
    return [a for a in arguments if isinstance(a, int) and not isinstance(a, bool)]


def _argument(arguments: Sequence[Any], place: int) -> Tensor | None:
    return as_tensor(arguments[place]) if place < len(arguments) else None


def _logarithm(name: str, x: Tensor | None, border: float) -> Verdict | None:
    if x is None:
        return None
    zeros, below = count(x == border), count(x < border)
    if not zeros + below:
        return None
    of = "zero" if border == 0 else "value equal to -1"
    parts = [amount(zeros, of, x.numel())] if zeros and border == 0 else []
    parts += [f"{zeros} values of exactly {border:g} among {x.numel()}"] if zeros and border else []
    parts += (
        [
            amount(below, "negative number", x.numel())
            if border == 0
            else f"{below} values below {border:g} among {x.numel()}"
        ]
        if below
        else []
    )
    return Verdict(
        operation=name,
        mechanism="log_of_negative" if below else "log_of_zero",
        argument=f"{name} received {' and '.join(parts)}",
        cause="log_of_nonpositive",
        confidence=0.95,
        figures={"count": float(zeros + below), **extent(x)},
    )


def log(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge log, log2 and log10 of 0 or less."""
    return _logarithm(name, _argument(arguments, 0), 0.0)


def log1p(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge log(1 + x) of -1 or less."""
    return _logarithm(name, _argument(arguments, 0), -1.0)


def xlogy(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge the second argument of x log y."""
    return _logarithm(name, _argument(arguments, 1), 0.0)


def logit(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge log(x / (1 - x)) outside the open interval (0, 1)."""
    x = _argument(arguments, 0)
    if x is None or not (outside := count((x <= 0) | (x >= 1))):
        return None
    words = f"{name} received {outside} values outside (0, 1) among {x.numel()}"
    figures = {"count": float(outside), **extent(x)}
    return Verdict(name, "log_of_zero", words, "log_of_nonpositive", 0.8, figures)


def divide(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge a divisor of 0; 0/0 is told apart where the numerator is known."""
    above, below = _argument(arguments, 0), _argument(arguments, 1)
    if below is None:
        return None
    zeros = below == 0
    if not (number := count(zeros)):
        return None
    both = 0
    if above is not None:
        both = count((above == 0) & zeros)
    tail = f", with 0 above it in {both} places (0/0)" if both else ""
    figures = {"count": float(number), **extent(below)}
    words = f"the divisor of {name} has {amount(number, 'zero', below.numel())}{tail}"
    mechanism = "zero_by_zero" if both else "division_by_zero"
    return Verdict("div", mechanism, words, "division_by_zero", 0.95, figures)


def reciprocal(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge 1/x, 1/sqrt(x) and modulo of 0, from the argument or, without it, from the result."""
    x = _argument(arguments, 0)
    if x is None and out is not None:
        number, size = count(torch.isinf(out)), out.numel()
        figures = {"count": float(number), "size": float(size)}
    elif x is not None:
        number, size = count(x == 0), x.numel()
        figures = {"count": float(number), **extent(x)}
        if name == "rsqrt" and not number and (below := count(x < 0)):
            words = f"rsqrt received {amount(below, 'negative number', size)}"
            return Verdict(
                name, "root_of_negative", words, None, 0.5, {**figures, "count": float(below)}
            )
    else:
        return None
    if not number:
        return None
    words = f"{name} received {amount(number, 'zero', size)}"
    return Verdict(name, "division_by_zero", words, "division_by_zero", 0.95, figures)


def modulo(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge the divisor of remainder and fmod."""
    return divide(name, (None, *arguments[1:2]), None)


def root(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge the square root of a negative number (at 0 only its gradient is infinite)."""
    x = _argument(arguments, 0)
    mask = x < 0 if x is not None else (torch.isnan(out) if out is not None else None)
    if mask is None or not (number := count(mask)):
        return None
    figures = {"count": float(number), **(extent(x) if x is not None else {})}
    words = f"{name} received {amount(number, 'negative number', mask.numel())}"
    return Verdict(name, "root_of_negative", words, None, 0.5, figures)


def power(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge 0 to a negative power, a negative base under a fraction, and overflow."""
    base, exponent = _argument(arguments, 0), _argument(arguments, 1)
    if base is None or exponent is None:
        return None
    at_zero = count((base == 0) & (exponent < 0))
    if at_zero:
        words = f"pow received {amount(at_zero, 'zero', base.numel())} under a negative exponent"
        return Verdict(
            "pow",
            "division_by_zero",
            words,
            "division_by_zero",
            0.9,
            {"count": float(at_zero), **extent(base)},
        )
    fraction = count((base < 0) & (exponent != exponent.round()))
    if fraction:
        words = f"pow received {amount(fraction, 'negative number', base.numel())} under a fraction"
        return Verdict(
            "pow", "root_of_negative", words, None, 0.5, {"count": float(fraction), **extent(base)}
        )
    return overflow("pow", arguments, out)


def exponential(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge exp and its relatives above the dtype's limit (88.7 in float32, 11.09 in float16)."""
    x = _argument(arguments, 0)
    known = x if x is not None else out
    if known is None or not known.is_floating_point():
        return None
    limit = math.log(torch.finfo(known.dtype).max)
    too_big = torch.isinf(known) if x is None else x.abs() > limit - 1
    if out is not None and x is not None:
        too_big = torch.isinf(out)
    if not (number := count(too_big)):
        return None
    figures: dict[str, float] = {
        "count": float(number),
        "size": float(known.numel()),
        "limit": limit,
    }
    largest = ""
    if x is not None:
        figures |= extent(x)
        largest = f", the largest {figures.get('maximum', math.nan):.4g}"
    words = (
        f"{name} received {amount(number, 'number', known.numel())} above {limit:.4g}, "
        f"the limit of {str(known.dtype)[6:]}{largest}"
    )
    if known.dtype is torch.float16:
        return Verdict(name, "exp_overflow", words, "half_precision_overflow", 0.7, figures)
    return Verdict(name, "exp_overflow", words, "exp_overflow", 0.95, figures)


def softmax(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge rows of which every entry is -Inf: the row's softmax is 0/0."""
    x = _argument(arguments, 0)
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
    for argument in arguments[3:]:
        mask = argument if isinstance(argument, Tensor) else None
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
    x = _argument(arguments, 0)
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
    x = _argument(arguments, 0)
    if x is None or x.numel():
        return overflow(name, arguments, None)
    words = f"{name} was taken over an empty tensor of shape {tuple(x.shape)}"
    return Verdict(
        name, "mean_of_nothing", words, "division_by_zero", 0.7, {"count": 1.0, "size": 0.0}
    )


def loss_mean(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge a loss averaged over no element (a sum over none is 0)."""
    x = _argument(arguments, 0)
    if x is None:
        return None
    if x.numel() or next(iter(_numbers(arguments[2:])), MEAN) != MEAN:
        return overflow(name, arguments, out) if x.numel() and out is not None else None
    words = f"{name} averages over an empty tensor of shape {tuple(x.shape)}"
    figures = {"count": 1.0, "size": 0.0}
    return Verdict(name, "mean_of_nothing", words, "degenerate_targets", 0.7, figures)


def nll(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge a negative log likelihood whose total weight is 0: every target is ignored."""
    target = _argument(arguments, 1)
    if target is None:
        return None
    total = next((a for a in arguments[2:] if isinstance(a, Tensor) and a.dim() == 0), None)
    reduction, ignore = (MEAN, -100, *_numbers(arguments[2:]))[-2:]
    ignored = count(target == ignore)
    if reduction == MEAN and (
        (total is not None and float(total) == 0) or ignored == target.numel()
    ):
        words = f"all {target.numel()} targets are ignored or weigh 0: the mean is 0/0"
        figures = {"count": float(target.numel()), "size": float(target.numel())}
        return Verdict("cross_entropy", "zero_by_zero", words, "degenerate_targets", 0.9, figures)
    return overflow(name, arguments, out)


def ctc(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge CTC: an Inf loss means a target that the input is too short to produce."""
    if out is None or not (number := count(torch.isinf(out))):
        return None
    words = (
        f"ctc_loss cannot align {number} of {out.numel()} targets: longer, with the blanks between "
        "repeats, than their inputs"
    )
    figures = {"count": float(number), "size": float(out.numel())}
    return Verdict("ctc_loss", "infeasible_target", words, "infeasible_target", 0.95, figures)


def bounds(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge acos, asin, acosh, atanh, erfinv outside or at the ends of their domain."""
    x = _argument(arguments, 0)
    if x is None:
        return None
    outside = (
        x < 1 if name == "acosh" else (x.abs() > 1 if name in {"acos", "asin"} else x.abs() >= 1)
    )
    if not (number := count(outside)):
        return None
    at_pole = count(x.abs() == 1) if name in {"atanh", "erfinv"} else 0
    words = f"{name} received {amount(number, 'value', x.numel())} outside its domain"
    if at_pole:
        words = f"{name} received {at_pole} values of exactly 1 or -1 among {x.numel()}, its pole"
    cause, confidence = ("division_by_zero", 0.5) if at_pole else (None, 0.5)
    figures = {"count": float(number), **extent(x)}
    return Verdict(name, "outside_domain", words, cause, confidence, figures)


def determinant(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge matrix functions of a singular matrix."""
    x = _argument(arguments, 0)
    size = tuple(x.shape) if x is not None else ()
    words = f"{name.lstrip('_')} received a singular matrix {size}"
    return Verdict(name.lstrip("_"), "singular_matrix", words, None, 0.5, {"count": 1.0})


def normalization(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge a normalisation with eps 0 over values that are all the same."""
    x = _argument(arguments, 0)
    if x is None or flags(x):
        return None
    operation = name.removeprefix("native_").removeprefix("_")
    if float(x.abs().max()) > torch.finfo(x.dtype).max ** 0.5:
        return overflow(operation, arguments, out)
    words = f"{operation} divides by a standard deviation of 0 (constant values, eps 0)"
    return Verdict(operation, "division_by_zero", words, "division_by_zero", 0.7, extent(x))


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


RULES: dict[str, Rule] = {
    **dict.fromkeys(("log", "log2", "log10"), log),
    **dict.fromkeys(("xlogy", "special_xlogy"), xlogy),
    **dict.fromkeys(("div", "true_divide", "divide"), divide),
    **dict.fromkeys(("reciprocal", "rsqrt"), reciprocal),
    **dict.fromkeys(("remainder", "fmod"), modulo),
    **dict.fromkeys(("exp", "expm1", "exp2", "cosh", "sinh"), exponential),
    **dict.fromkeys(
        ("_softmax", "_log_softmax", "softmax", "log_softmax", "_safe_softmax"), softmax
    ),
    **dict.fromkeys(("logsumexp", "logcumsumexp"), softmax),
    **dict.fromkeys(("std", "var", "std_mean", "var_mean"), deviation),
    **dict.fromkeys(("acos", "asin", "acosh", "atanh", "erfinv"), bounds),
    **dict.fromkeys(
        ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"), loss_mean
    ),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward", "nll_loss"), nll),
    **dict.fromkeys(("_ctc_loss", "ctc_loss"), ctc),
    **dict.fromkeys(
        (
            "native_layer_norm",
            "native_group_norm",
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_batch_norm_with_update",
            "_fused_rms_norm",
        ),
        normalization,
    ),
    **dict.fromkeys(
        (
            "_linalg_slogdet",
            "slogdet",
            "linalg_inv_ex",
            "linalg_cholesky_ex",
            "_linalg_det",
            "_linalg_solve_ex",
            "linalg_pinv",
        ),
        determinant,
    ),
    "log1p": log1p,
    "logit": logit,
    "special_logit": logit,
    "sqrt": root,
    "pow": power,
    "mean": mean,
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_attention_math": attention,
    "_scaled_dot_product_efficient_attention": attention,
    "_scaled_dot_product_flash_attention": attention,
}
"""By the bare operation name: no namespace, overload or trailing underscore."""


def judge(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Return why `name` made a non-finite value of these arguments, or None if no rule says."""
    rule = RULES.get(name)
    return rule(name, arguments, out) if rule is not None else None
