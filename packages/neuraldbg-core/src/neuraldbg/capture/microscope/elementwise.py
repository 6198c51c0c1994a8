# SPDX-License-Identifier: MIT
"""Rules for elementwise operations: poles, domains and ranges."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.microscope.arguments import argument, overflow
from neuraldbg.capture.microscope.verdict import Verdict, amount, count, extent

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    return _logarithm(name, argument(arguments, 0), 0.0)


def log1p(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge log(1 + x) of -1 or less."""
    return _logarithm(name, argument(arguments, 0), -1.0)


def xlogy(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge the second argument of x log y."""
    return _logarithm(name, argument(arguments, 1), 0.0)


def logit(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge log(x / (1 - x)) outside the open interval (0, 1)."""
    x = argument(arguments, 0)
    if x is None or not (outside := count((x <= 0) | (x >= 1))):
        return None
    words = f"{name} received {outside} values outside (0, 1) among {x.numel()}"
    figures = {"count": float(outside), **extent(x)}
    return Verdict(name, "log_of_zero", words, "log_of_nonpositive", 0.8, figures)


def divide(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge a divisor of 0; 0/0 is told apart where the numerator is known."""
    above, below = argument(arguments, 0), argument(arguments, 1)
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
    x = argument(arguments, 0)
    if x is None and out is not None:
        number, size = count(torch.isinf(out)), out.numel()
        if name == "rsqrt" and not number and (below := count(torch.isnan(out))):
            words = f"rsqrt received {amount(below, 'negative number', size)}"
            figures = {"count": float(below), "size": float(size)}
            return Verdict(name, "root_of_negative", words, None, 0.5, figures)
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
    x = argument(arguments, 0)
    mask = x < 0 if x is not None else (torch.isnan(out) if out is not None else None)
    if mask is None or not (number := count(mask)):
        return None
    figures = {"count": float(number), **(extent(x) if x is not None else {})}
    words = f"{name} received {amount(number, 'negative number', mask.numel())}"
    return Verdict(name, "root_of_negative", words, None, 0.5, figures)


def power(_name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge 0 to a negative power, a negative base under a fraction, and overflow."""
    base, exponent = argument(arguments, 0), argument(arguments, 1)
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


WIDE = math.log(torch.finfo(torch.float32).max)
"""Argument from which exp overflows in float32, too: no wider format would have helped."""


def exponential(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Judge exp and its relatives above the dtype's limit (88.7 in float32, 11.09 in float16)."""
    x = argument(arguments, 0)
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
        if figures.get("maximum", 0.0) > WIDE:
            words += f", above {WIDE:.4g}, that of float32, too"
            return Verdict(name, "exp_overflow", words, "exp_overflow", 0.9, figures)
        return Verdict(name, "exp_overflow", words, "half_precision_overflow", 0.7, figures)
    return Verdict(name, "exp_overflow", words, "exp_overflow", 0.95, figures)


def bounds(name: str, arguments: Sequence[Any], _: Tensor | None) -> Verdict | None:
    """Judge acos, asin, acosh, atanh, erfinv outside or at the ends of their domain."""
    x = argument(arguments, 0)
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
