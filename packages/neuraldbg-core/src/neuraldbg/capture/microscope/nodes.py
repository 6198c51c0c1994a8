# SPDX-License-Identifier: MIT
"""Nodes of the autograd graph: what they saved, and where their derivative has no finite value.

A node keeps what its backward formula needs; that is the only trace of the user's loss code, which
cannot be run again. Forward births are judged by the rules of the operation, backward births by
the places where the derivative of a finite result is infinite or undefined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuraldbg.capture.microscope.rules import as_tensor, judge, overflow
from neuraldbg.capture.microscope.verdict import NAN, Verdict, amount, count, extent, flags


@dataclass(frozen=True, slots=True)
class Kind:
    """How to read one kind of node: operation name, saved arguments in call order, saved result."""

    operation: str
    arguments: tuple[str, ...] = ("self",)
    result: str | None = None


def _kinds() -> dict[str, Kind]:
    table = {
        "Div": Kind("div", ("self", "other")),
        "Pow": Kind("pow", ("self", "exponent")),
        "Xlogy": Kind("xlogy", ("self", "other")),
        "Sqrt": Kind("sqrt", (), "result"),
        "Hypot": Kind("hypot", ("self", "other"), "result"),
        "Std": Kind("std", ("self",), "result"),
        "StdMean": Kind("std", ("self",), "result0"),
        "Var": Kind("var", ("self", "dim", "correction")),
        "VarMean": Kind("var", ("self",)),
        "Logsumexp": Kind("logsumexp", ("self", "dim"), "result"),
        "Logcumsumexp": Kind("logcumsumexp", ("self", "dim"), "result"),
        "NllLoss": Kind("nll_loss", ("self", "target", "weight", "total_weight", "reduction", "ignore_index")),
        "NllLoss2D": Kind("nll_loss", ("self", "target", "weight", "total_weight", "reduction", "ignore_index")),
        "CtcLoss": Kind("ctc_loss", (), "result0"),
        "LinalgEigh": Kind("eigh", ("eigenvalues",)),
        "LinalgSvd": Kind("svd", ("S",)),
        "LinalgSlogdet": Kind("slogdet", ("A",)),
        "LinalgVectorNorm": Kind("norm", ("self",), "result"),
        "Norm": Kind("norm", ("self",), "result"),
        "Cdist": Kind("cdist", ("x1", "x2"), "result"),
        "EuclideanDist": Kind("cdist", ("x1", "x2"), "result"),
        "Mul": Kind("mul", ("self", "other")),
        "Mean": Kind("mean", ()),
        "Abs": Kind("abs", ("self",)),
        "Atan2": Kind("atan2", ("self", "other")),
        "BinaryCrossEntropyWithLogits": Kind("binary_cross_entropy_with_logits", ("self", "target")),
        "Mm": Kind("mm", ("self", "mat2")),
        "Addmm": Kind("linear", ("mat1", "mat2")),
        "Convolution": Kind("convolution", ("input", "weight")),
        "Mv": Kind("mv", ("self", "vec")),
        "Bmm": Kind("bmm", ("self", "mat2")),
        "Clamp": Kind("clamp", ("self",)),
        "ClampMin": Kind("clamp_min", ("self",)),
    }
    for name in ("Log", "Log1P", "Log2", "Log10", "Logit", "Acos", "Asin", "Acosh", "Atanh", "Erfinv",
                 "Sinh", "Cosh", "Lgamma", "Digamma"):
        table[name] = Kind(name.lower())
    for name in ("Exp", "Expm1", "Exp2", "Rsqrt", "Reciprocal"):
        table[name] = Kind(name.lower(), (), "result")
    for name in ("Softmax", "LogSoftmax"):
        table[name] = Kind("log_softmax" if name[0] == "L" else "softmax", (), "result")
    for name, operation in (("MseLoss", "mse_loss"), ("SmoothL1Loss", "smooth_l1_loss"),
                            ("HuberLoss", "huber_loss"), ("BinaryCrossEntropy", "binary_cross_entropy"),
                            ("SoftMarginLoss", "soft_margin_loss")):
        table[name] = Kind(operation, ("self", "target", "reduction"))
    return table


KINDS = _kinds()
"""By node name without `Backward` and its number."""

STEEP = frozenset({
    "Sqrt", "Pow", "Div", "Log", "Log1P", "Log2", "Log10", "Xlogy", "Logit", "Acos", "Asin", "Acosh",
    "Atanh", "Erfinv", "Hypot", "Exp", "Expm1", "Exp2", "Sinh", "Cosh", "Rsqrt", "Reciprocal", "Std",
    "StdMean", "Logsumexp", "Softmax", "LogSoftmax", "LinalgEigh", "LinalgSvd", "LinalgVectorNorm",
    "Norm", "MseLoss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy", "Abs", "CtcLoss",
    "BinaryCrossEntropyWithLogits", "NllLoss", "Lgamma",
})  # fmt: skip
"""Kinds whose saved tensors are kept until the step's end, in case its gradient is not finite."""


def stem(name: str) -> str:
    """Return `Sqrt` for `SqrtBackward0`."""
    return name.partition("Backward")[0]


def is_custom(node: Any) -> bool:
    """Whether the node belongs to a `torch.autograd.Function` of the user."""
    return hasattr(node, "_forward_cls")


def saved(node: Any, attribute: str) -> Any:
    """Return what `node` saved, or None: freed, changed in place, or behind saved-tensor hooks.

    Hooks mean checkpointing or offloading; unpacking would run the user's code again.
    """
    try:
        raw = getattr(node, f"_raw_saved_{attribute}", None)
        if raw is not None and getattr(raw, "unpack_hook", None) is not None:
            return None
        value = getattr(node, f"_saved_{attribute}", None)
    except RuntimeError:
        return None
    return value.detach() if isinstance(value, Tensor) else value


@dataclass(frozen=True, slots=True)
class Mask:
    """Something between a node and the loss that throws part of its result away."""

    operation: str
    dropped: Tensor | None
    """Bool, true where the result is thrown away; None where that is not known."""


@dataclass(slots=True)
class SavedNode:
    """What one node saved, detached from the graph."""

    name: str
    sequence: int
    values: Mapping[str, Any]
    masks: tuple[Mask, ...] = ()
    custom: str | None = None
    is_fed_by_model: bool = False
    """Whether an operand comes straight out of a watched model."""
    open_operands: int = 0
    """Operands without a graph: data, targets, constants."""
    makers: tuple[str, ...] = ()
    """Node stems behind the first operand (of a division: the divisor), nearest first."""
    kind: Kind = field(init=False)

    def __post_init__(self) -> None:
        key = stem(self.name)
        self.kind = KINDS.get(key) or Kind(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower(), ())

    @property
    def operation(self) -> str:
        """The user's word for it."""
        return self.custom or self.kind.operation

    @property
    def arguments(self) -> list[Any]:
        """Saved arguments in call order, None where not saved."""
        names = self.kind.arguments
        return [self.values.get(name) for name in names] if names else [None]

    @property
    def result(self) -> Tensor | None:
        """The saved result, else the result computed again from the arguments, else None."""
        if self.kind.result is not None:
            return as_tensor(self.values.get(self.kind.result))
        compute = RECOMPUTE.get(self.kind.operation)
        arguments = self.arguments
        if compute is None or any(a is None for a in arguments):
            return None
        with torch.no_grad():
            return compute(*arguments)

    def nonfinite_arguments(self) -> list[tuple[str, Tensor]]:
        """Return saved arguments that are not finite, by name."""
        pairs = [(name, self.values.get(name)) for name in self.kind.arguments]
        return [(n, v) for n, v in pairs if isinstance(v, Tensor) and flags(v)]


def read(node: Any, masks: tuple[Mask, ...] = ()) -> SavedNode:
    """Copy references to what `node` saved; the node itself is not kept."""
    name = node.name()
    kind = KINDS.get(stem(name))
    names = (*kind.arguments, *((kind.result,) if kind.result else ())) if kind else ()
    values = {one: saved(node, one) for one in names}
    if name.startswith("Mean"):
        values["numel"] = getattr(node, "_saved_self_sym_numel", None)
    custom = node._forward_cls.__name__ if is_custom(node) else None  # noqa: SLF001
    return SavedNode(name, node._sequence_nr(), values, masks, custom)  # noqa: SLF001


def _reduced(values: Tensor, reduction: int) -> Tensor:
    return (values, values.mean(), values.sum())[reduction]


RECOMPUTE: dict[str, Callable[..., Tensor]] = {
    "log": torch.log, "log1p": torch.log1p, "log2": torch.log2, "log10": torch.log10,
    "logit": torch.logit, "acos": torch.acos, "asin": torch.asin, "acosh": torch.acosh,
    "atanh": torch.atanh, "erfinv": torch.erfinv, "sinh": torch.sinh, "cosh": torch.cosh,
    "lgamma": torch.lgamma, "digamma": torch.digamma, "div": torch.div, "pow": torch.pow,
    "xlogy": torch.xlogy, "mul": torch.mul, "mm": torch.mm, "bmm": torch.bmm,
    "slogdet": lambda matrix: torch.linalg.slogdet(matrix)[1],
    "mse_loss": lambda x, y, reduction: _reduced((x - y).square(), reduction),
    "smooth_l1_loss": lambda x, y, reduction: _reduced(F.smooth_l1_loss(x, y, reduction="none"), reduction),
}  # fmt: skip
"""Elementwise operations whose result the graph does not keep."""


def judge_forward(node: SavedNode) -> tuple[Verdict | None, bool]:
    """Return the birth in this node's forward, and whether its operands are known to be finite.

    Call for a loss that is not finite.
    """
    if node.nonfinite_arguments():
        return None, False
    verdict, is_known = _judge_forward(node)
    return (refine_divisor(node, verdict) if verdict is not None else None), is_known


def refine_divisor(node: SavedNode, verdict: Verdict) -> Verdict:
    """Look at what made a divisor of 0: a standard deviation, or an eps that half rounds to 0."""
    if verdict.operation != "div" or verdict.cause != "division_by_zero":
        return verdict
    divisor = node.values.get("other")
    if {"Std", "Var", "StdMean", "VarMean"} & set(node.makers):
        words = f"{verdict.argument}: a standard deviation of 0, the feature is constant"
        return replace(verdict, argument=words, cause="zero_variance_feature", confidence=0.7)
    is_half = isinstance(divisor, Tensor) and divisor.dtype is torch.float16
    if is_half and node.makers[:1] in {("Add",), ("Clamp",), ("ClampMin",)}:
        words = f"{verdict.argument}: too small for float16, rounded to 0"
        return replace(verdict, argument=words, mechanism="half_underflow", cause="half_precision_underflow",
                       confidence=0.7)
    return verdict


def _judge_forward(node: SavedNode) -> tuple[Verdict | None, bool]:
    if node.kind.operation == "mean" and node.values.get("numel") == 0:
        return judge("mean", [torch.empty(0)], None), True
    result = node.result
    if node.kind.operation in {"std", "var"} and node.values.get("self") is not None:
        verdict = _deviation(node)
        return verdict, True
    if result is None:
        if node.kind.operation == "nll_loss":
            return judge("nll_loss", node.arguments, None), True
        if node.kind.operation == "div":
            return judge("div", node.arguments, None), False
        return (judge(node.kind.operation, node.arguments, None), True) if _has_arguments(node) else (None, False)
    if not flags(result):
        return None, True
    verdict = judge(node.kind.operation, node.arguments, result)
    if verdict is None and _has_arguments(node):
        verdict = overflow(node.operation, node.arguments, result)
    return verdict, _has_arguments(node)


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
    return ordered.diff(dim=-1).abs() <= 1e-6 * ordered.abs().amax(-1, keepdim=True).clamp(min=1e-30)


def _where_argument(place: int, test: Callable[[Tensor], Tensor]) -> Callable[[SavedNode], Tensor | None]:
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
    "acos": (_where_argument(0, lambda x: x.abs() == 1), "bound", "derivative_at_bound", "sqrt_at_zero", 0.5),
    "asin": (_where_argument(0, lambda x: x.abs() == 1), "bound", "derivative_at_bound", "sqrt_at_zero", 0.5),
    "acosh": (_where_argument(0, lambda x: x == 1), "bound", "derivative_at_bound", "sqrt_at_zero", 0.5),
    "eigh": (_close_pairs, "pair of equal eigenvalue", "equal_eigenvalues", "division_by_zero", 0.4),
    "svd": (_close_pairs, "pair of equal singular value", "equal_eigenvalues", "division_by_zero", 0.4),
    "xlogy": (_where_argument(1, lambda y: y <= 0), "zero", "log_of_zero", "log_of_nonpositive", 0.7),
    "log": (_where_argument(0, lambda x: x <= 0), "zero or negative number", "log_of_zero", None, 0.9),
    "log2": (_where_argument(0, lambda x: x <= 0), "zero or negative number", "log_of_zero", None, 0.9),
    "log10": (_where_argument(0, lambda x: x <= 0), "zero or negative number", "log_of_zero", None, 0.9),
    "log1p": (_where_argument(0, lambda x: x <= -1), "value of -1 or less", "log_of_zero", None, 0.9),
    "atanh": (_where_argument(0, lambda x: x.abs() >= 1), "bound", "derivative_at_bound", None, 0.9),
    "erfinv": (_where_argument(0, lambda x: x.abs() >= 1), "bound", "derivative_at_bound", None, 0.9),
    "logit": (_where_argument(0, lambda x: (x <= 0) | (x >= 1)), "bound", "derivative_at_bound", None, 0.9),
    "div": (_where_argument(1, lambda y: y == 0), "zero divisor", "division_by_zero", None, 0.9),
    "exp": (_where_result(torch.isinf), "overflow", "exp_overflow", None, 0.9),
    "expm1": (_where_result(torch.isinf), "overflow", "exp_overflow", None, 0.9),
    "exp2": (_where_result(torch.isinf), "overflow", "exp_overflow", None, 0.9),
    "sinh": (_where_result(torch.isinf), "overflow", "exp_overflow", None, 0.9),
    "cosh": (_where_result(torch.isinf), "overflow", "exp_overflow", None, 0.9),
    "rsqrt": (_where_result(torch.isinf), "zero", "division_by_zero", None, 0.9),
    "reciprocal": (_where_result(torch.isinf), "zero", "division_by_zero", None, 0.9),
    "norm": (_steep_norm, "overflow", "overflow", None, 0.5),
    "logsumexp": (_where_result(lambda y: y == -torch.inf), "row of -inf", "fully_masked_row", None, 0.9),
    "softmax": (_where_result(torch.isnan), "NaN", "fully_masked_row", None, 0.9),
    "log_softmax": (_where_result(torch.isnan), "NaN", "fully_masked_row", None, 0.9),
    "std": (_where_result(torch.isnan), "NaN", "single_sample", None, 0.9),
}
"""Where a finite loss still has no finite derivative.

Rows without a cause have a non-finite result too, so under a finite loss it was thrown away: the
cause is `masked_nan_gradient`.
"""


def judge_backward(node: SavedNode) -> Verdict | None:
    """Return the birth in this node's backward. Call where the loss is finite and its gradient not."""
    broken = node.nonfinite_arguments()
    entry = STEEPNESS.get(node.kind.operation)
    mask = entry[0](node) if entry is not None else None
    number = count(mask) if mask is not None else 0
    if entry is None or mask is None or not number:
        return _judge_broken(node, broken) if broken else None
    _, what, mechanism, cause, confidence = entry
    size = mask.numel()
    figures: dict[str, float] = {"count": float(number), "size": float(size)}
    argument = as_tensor(node.arguments[0])
    figures |= extent(argument) if argument is not None else {}
    words = f"{node.operation} received {amount(number, what, size)}; {_ROOT_WORDS}"
    dropping = next((one.operation for one in node.masks if _drops(one, mask)), None)
    if dropping is not None or cause is None:
        words = f"{words}, and the result there is thrown away by {dropping or 'a mask'}: 0 * inf is NaN"
        mechanism, cause, confidence = f"masked_{mechanism}", "masked_nan_gradient", 0.9
    return Verdict(node.operation, mechanism, words, cause, confidence, figures)


def judge_hidden(node: SavedNode, verdict: Verdict | None) -> Verdict | None:
    """Judge a node whose saved tensors cannot be read (checkpointing) by what its formula divided by."""
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
    words = (f"argument {name!r} of {node.operation} holds {number} {kind} of {value.numel()} values that the "
             "loss does not see: their gradient is 0 * nan")
    figures = {"count": float(number), **extent(value)}
    return Verdict(node.operation, "masked_nonfinite_operand", words, "masked_nan_gradient", 0.9, figures)


def _drops(mask: Mask, singular: Tensor) -> bool:
    if mask.dropped is None:
        return True
    try:
        dropped, places = torch.broadcast_tensors(mask.dropped, singular)
    except RuntimeError:
        return False
    return bool((dropped | ~places).all())
