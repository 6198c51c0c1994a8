# SPDX-License-Identifier: MIT
"""Judging graph nodes: births in their forward, and places where they have no finite derivative."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neuraldbg.capture.microscope.arguments import as_tensor, overflow
from neuraldbg.capture.microscope.rules import judge
from neuraldbg.capture.microscope.verdict import (
    NAN,
    Verdict,
    amount,
    count,
    extent,
    flags,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.capture.microscope.nodes import Mask, SavedNode


def judge_forward(node: SavedNode) -> tuple[Verdict | None, bool]:
    """Return the birth in this node's forward, and whether its operands are known to be finite.

    Call for a loss that is not finite.
    """
    if node.nonfinite_arguments():
        return None, False
    verdict, is_known = _judge_forward(node)
    return (refine_divisor(node, verdict) if verdict is not None else None), is_known


EPSILON = frozenset({"Add", "Clamp", "ClampMin"})
"""Kinds by which an eps is added to a divisor."""


def refine_divisor(node: SavedNode, verdict: Verdict) -> Verdict:
    """Look at what made an offending 0: a standard deviation, or a number that half rounds to 0."""
    makers = node.past.makers
    if verdict.cause not in {"division_by_zero", "log_of_nonpositive"} or not makers:
        return verdict
    is_division = verdict.operation == "div"
    if is_division and {"Std", "Var", "StdMean", "VarMean"} & set(makers):
        words = f"{verdict.argument}: a standard deviation of 0, the feature is constant"
        return replace(verdict, argument=words, cause="zero_variance_feature", confidence=0.7)
    value = node.values.get("other" if is_division else "self")
    is_half = isinstance(value, Tensor) and value.dtype is torch.float16
    if node.past.is_rounded or (is_division and is_half and makers[0] in EPSILON):
        words = f"{verdict.argument}: too small for float16, rounded to 0"
        return replace(
            verdict,
            argument=words,
            mechanism="half_underflow",
            cause="half_precision_underflow",
            confidence=0.7,
        )
    return verdict


def _judge_forward(node: SavedNode) -> tuple[Verdict | None, bool]:  # noqa: PLR0911
    if node.kind.operation == "mean" and node.values.get("numel") == 0:
        return judge("mean", [torch.empty(0)], None), True
    result = node.result
    if node.kind.operation in {"softmax", "log_softmax"} and not node.past.is_masked:
        return _unmasked_softmax(node), False
    if node.kind.operation in {"std", "var"} and node.values.get("self") is not None:
        verdict = _deviation(node)
        return verdict, True
    if result is None:
        if node.kind.operation == "nll_loss":
            return judge("nll_loss", node.arguments, None), True
        if node.kind.operation == "div":
            return judge("div", node.arguments, None), False
        return (
            (judge(node.kind.operation, node.arguments, None), True)
            if _has_arguments(node)
            else (None, False)
        )
    if not flags(result):
        return None, True
    verdict = judge(node.kind.operation, node.arguments, result)
    if verdict is None and _has_arguments(node):
        verdict = overflow(node.operation, node.arguments, result)
    return verdict, _has_arguments(node)


def _unmasked_softmax(node: SavedNode) -> Verdict | None:
    """Judge a softmax with NaN in its result and no mask before it: it met what was broken."""
    result = node.result
    if result is None or not flags(result) & NAN:
        return None
    rows = count(torch.isnan(result).any(-1)) if result.dim() else 1
    words = f"{node.operation} received a NaN or Inf in {rows} rows, and no mask put it there"
    figures = {"count": float(rows), "size": float(result.numel())}
    if node.past.is_half:
        words += ": float16 numbers, whose limit is 65504"
        cause, mechanism = "half_precision_overflow", "half_overflow"
        return Verdict(node.operation, mechanism, words, cause, 0.5, figures)
    return Verdict(node.operation, "nonfinite_operand", words, None, 0.3, figures)


def _has_arguments(node: SavedNode) -> bool:
    return any(isinstance(a, Tensor) for a in node.arguments)


def _deviation(node: SavedNode) -> Verdict | None:
    x, out = node.values["self"], node.result
    if out is None:
        dims, correction = node.values.get("dim"), node.values.get("correction")
        places = [_signed(d) for d in dims] if dims else None
        out = torch.var(x, dim=places, correction=1 if correction is None else correction)
    return judge(node.kind.operation, [x], out) if flags(out) else None


def _signed(place: int) -> int:
    """Return a saved dimension as the user gave it (the graph keeps -1 as 2**64 - 1)."""
    return place - (1 << 64) if place >= 1 << 63 else place


def _steep_power(node: SavedNode) -> Tensor | None:
    base, exponent = (as_tensor(a) for a in node.arguments)
    if base is None or exponent is None:
        return None
    return (base == 0) & (exponent < 1) & (exponent != 0)


def _close_pairs(node: SavedNode) -> Tensor | None:
    values = as_tensor(node.arguments[0])
    if values is None or values.shape[-1] < 2:
        return None
    ordered = values.sort(-1).values
    return ordered.diff(dim=-1).abs() <= 1e-6 * ordered.abs().amax(-1, keepdim=True).clamp(
        min=1e-30
    )


def _where_argument(
    place: int, test: Callable[[Tensor], Tensor]
) -> Callable[[SavedNode], Tensor | None]:
    def find(node: SavedNode) -> Tensor | None:
        x = as_tensor(node.arguments[place])
        return None if x is None else test(x)

    return find


def _where_result(test: Callable[[Tensor], Tensor]) -> Callable[[SavedNode], Tensor | None]:
    def find(node: SavedNode) -> Tensor | None:
        return None if node.result is None else test(node.result)

    return find


def _steep_norm(node: SavedNode) -> Tensor | None:
    result = node.result  # finite subgradient at 0 in torch; not so after overflow of the squares
    return None if result is None else torch.isinf(result)


_ROOT_WORDS = "its derivative is infinite there"
STEEPNESS: dict[str, tuple[Callable[[SavedNode], Tensor | None], str, str, str | None, float]] = {
    # operation: (where, what is found there, mechanism, cause, confidence)
    "sqrt": (_where_result(lambda y: y == 0), "zero", "sqrt_at_zero", "sqrt_at_zero", 0.95),
    "hypot": (_where_result(lambda y: y == 0), "zero", "sqrt_at_zero", "sqrt_at_zero", 0.9),
    "pow": (_steep_power, "zero", "sqrt_at_zero", "sqrt_at_zero", 0.95),
    "acos": (
        _where_argument(0, lambda x: x.abs() == 1),
        "bound",
        "derivative_at_bound",
        "sqrt_at_zero",
        0.5,
    ),
    "asin": (
        _where_argument(0, lambda x: x.abs() == 1),
        "bound",
        "derivative_at_bound",
        "sqrt_at_zero",
        0.5,
    ),
    "acosh": (
        _where_argument(0, lambda x: x == 1),
        "bound",
        "derivative_at_bound",
        "sqrt_at_zero",
        0.5,
    ),
    "eigh": (
        _close_pairs,
        "pair of equal eigenvalue",
        "equal_eigenvalues",
        "division_by_zero",
        0.4,
    ),
    "svd": (
        _close_pairs,
        "pair of equal singular value",
        "equal_eigenvalues",
        "division_by_zero",
        0.4,
    ),
    "xlogy": (
        _where_argument(1, lambda y: y <= 0),
        "zero",
        "log_of_zero",
        "log_of_nonpositive",
        0.7,
    ),
    "log": (
        _where_argument(0, lambda x: x <= 0),
        "zero or negative number",
        "log_of_zero",
        None,
        0.9,
    ),
    "log2": (
        _where_argument(0, lambda x: x <= 0),
        "zero or negative number",
        "log_of_zero",
        None,
        0.9,
    ),
    "log10": (
        _where_argument(0, lambda x: x <= 0),
        "zero or negative number",
        "log_of_zero",
        None,
        0.9,
    ),
    "log1p": (
        _where_argument(0, lambda x: x <= -1),
        "value of -1 or less",
        "log_of_zero",
        None,
        0.9,
    ),
    "atanh": (
        _where_argument(0, lambda x: x.abs() >= 1),
        "bound",
        "derivative_at_bound",
        None,
        0.9,
    ),
    "erfinv": (
        _where_argument(0, lambda x: x.abs() >= 1),
        "bound",
        "derivative_at_bound",
        None,
        0.9,
    ),
    "logit": (
        _where_argument(0, lambda x: (x <= 0) | (x >= 1)),
        "bound",
        "derivative_at_bound",
        None,
        0.9,
    ),
    "div": (_where_argument(1, lambda y: y == 0), "zero divisor", "division_by_zero", None, 0.9),
    "exp": (_where_result(torch.isinf), "overflow", "exp_overflow", None, 0.9),
    "expm1": (_where_result(torch.isinf), "overflow", "exp_overflow", None, 0.9),
    "exp2": (_where_result(torch.isinf), "overflow", "exp_overflow", None, 0.9),
    "sinh": (_where_result(torch.isinf), "overflow", "exp_overflow", None, 0.9),
    "cosh": (_where_result(torch.isinf), "overflow", "exp_overflow", None, 0.9),
    "rsqrt": (_where_result(torch.isinf), "zero", "division_by_zero", None, 0.9),
    "reciprocal": (_where_result(torch.isinf), "zero", "division_by_zero", None, 0.9),
    "norm": (_steep_norm, "overflow", "overflow", None, 0.5),
    "logsumexp": (
        _where_result(lambda y: y == -torch.inf),
        "row of -inf",
        "fully_masked_row",
        None,
        0.9,
    ),
    "softmax": (_where_result(torch.isnan), "NaN", "fully_masked_row", None, 0.9),
    "log_softmax": (_where_result(torch.isnan), "NaN", "fully_masked_row", None, 0.9),
    "std": (_where_result(torch.isnan), "NaN", "single_sample", None, 0.9),
}
"""Where a finite loss still has no finite derivative.

Rows without a cause have a non-finite result too, so under a finite loss it was thrown away: the
cause is `masked_nan_gradient`.
"""


def judge_backward(node: SavedNode) -> Verdict | None:
    """Return the birth in this node's backward, where the loss is finite and its gradient not."""
    broken = node.nonfinite_arguments()
    entry = STEEPNESS.get(node.kind.operation)
    mask = entry[0](node) if entry is not None else None
    number = count(mask) if mask is not None else 0
    if entry is None or mask is None or not number:
        return _judge_broken(node, broken) if broken else _judge_dropped(node)
    _, what, mechanism, cause, confidence = entry
    size = mask.numel()
    figures: dict[str, float] = {"count": float(number), "size": float(size)}
    argument = as_tensor(node.arguments[0])
    figures |= extent(argument) if argument is not None else {}
    words = (
        f"{node.operation} received {amount(number, what, size)}; its derivative is infinite there"
    )
    dropping = _dropping(node, mask)
    if dropping is not None or cause is None:
        by = dropping or "a mask"
        words = f"{words}, and the result there is thrown away by {by}: 0 * inf is NaN"
        mechanism, cause, confidence = f"masked_{mechanism}", "masked_nan_gradient", 0.9
    return Verdict(node.operation, mechanism, words, cause, confidence, figures)


def is_singular(node: SavedNode) -> bool:
    """Whether the derivative can be infinite where the result is finite."""
    entry = STEEPNESS.get(node.kind.operation)
    exponent = node.values.get("exponent")
    is_smooth = isinstance(exponent, int | float) and exponent >= 1
    return node.custom is None and entry is not None and entry[3] is not None and not is_smooth


def judge_unread(node: SavedNode) -> Verdict:
    """Judge a node whose arguments are gone, and which alone can have been at a singular point."""
    _, what, mechanism, cause, _ = STEEPNESS[node.kind.operation]
    words = (
        f"nothing else there has a derivative that can be infinite, as {node.operation} has at a "
        f"{what}"
    )
    if node.paths and all(node.paths):
        mechanism, cause = f"masked_{mechanism}", "masked_nan_gradient"
    return Verdict(node.operation, mechanism, words, cause, 0.6)


def _judge_dropped(node: SavedNode) -> Verdict | None:
    """Judge an operation whose own result is not finite: under a finite loss it was thrown away."""
    if node.kind.operation not in STEEPNESS or node.kind.operation == "norm":
        return None
    result = node.result
    if result is None or not (found := flags(result)):
        return None
    verdict = judge(node.kind.operation, node.arguments, result)
    if verdict is None:
        return None
    by = next((one.operation for path in node.paths for one in path), "a mask")
    words = (
        f"{verdict.argument}; the result there is thrown away by {by}, "
        f"and its gradient is 0 * {words_of(found)}"
    )
    return replace(
        verdict,
        mechanism=f"masked_{verdict.mechanism}",
        argument=words,
        cause="masked_nan_gradient",
        confidence=0.9,
    )


def judge_hidden(node: SavedNode, verdict: Verdict | None) -> Verdict | None:
    """Judge a node whose saved tensors are hidden (checkpointing) by what it divided by."""
    entry = STEEPNESS.get(node.kind.operation)
    if entry is None or verdict is None or verdict.cause != "division_by_zero":
        return None
    _, _, mechanism, cause, confidence = entry
    words = f"the derivative of {node.operation} divides by zero: {verdict.argument}"
    if cause is None:
        mechanism, cause = f"masked_{mechanism}", "masked_nan_gradient"
    return Verdict(node.operation, mechanism, words, cause, confidence - 0.1, verdict.figures)


def _judge_broken(node: SavedNode, broken: list[tuple[str, Tensor]]) -> Verdict:
    name, value = broken[0]
    number = count(~torch.isfinite(value))
    kind = "nan" if flags(value) & NAN else "inf"
    words = (
        f"argument {name!r} of {node.operation} holds {number} {kind} of {value.numel()} values "
        "that the loss does not see: their gradient is 0 * nan"
    )
    figures = {"count": float(number), **extent(value)}
    return Verdict(
        node.operation, "masked_nonfinite_operand", words, "masked_nan_gradient", 0.9, figures
    )


def _dropping(node: SavedNode, singular: Tensor) -> str | None:
    """Return what throws the singular places away, on each way to the loss; else None."""
    found = [next((m for m in path if _drops(m, singular)), None) for path in node.paths]
    first = found[0] if found else None
    return first.operation if first is not None and None not in found else None


def _drops(mask: Mask, singular: Tensor) -> bool:
    where = mask.dropped
    if where is None:
        return True
    try:
        dropped, places = torch.broadcast_tensors(where, singular)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return bool((dropped | ~places).all())
