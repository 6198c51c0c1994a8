# SPDX-License-Identifier: MIT
"""Nodes of the autograd graph: which kinds there are and what they saved.

A node keeps what its backward formula needs; that is the only trace of the user's loss code, which
cannot be run again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuraldbg.capture.microscope.arguments import as_tensor
from neuraldbg.capture.microscope.verdict import flags


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
        "NllLoss": Kind(
            "nll_loss", ("self", "target", "weight", "total_weight", "reduction", "ignore_index")
        ),
        "NllLoss2D": Kind(
            "nll_loss", ("self", "target", "weight", "total_weight", "reduction", "ignore_index")
        ),
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
        "BinaryCrossEntropyWithLogits": Kind(
            "binary_cross_entropy_with_logits", ("self", "target")
        ),
        "Mm": Kind("mm", ("self", "mat2")),
        "Addmm": Kind("linear", ("mat1", "mat2")),
        "Convolution": Kind("convolution", ("input", "weight")),
        "Mv": Kind("mv", ("self", "vec")),
        "Bmm": Kind("bmm", ("self", "mat2")),
        "Clamp": Kind("clamp", ("self",)),
        "ClampMin": Kind("clamp_min", ("self",)),
    }
    for name in (
        "Log",
        "Log1P",
        "Log2",
        "Log10",
        "Logit",
        "Acos",
        "Asin",
        "Acosh",
        "Atanh",
        "Erfinv",
        "Sinh",
        "Cosh",
        "Lgamma",
        "Digamma",
    ):
        table[name] = Kind(name.lower())
    for name in ("Exp", "Expm1", "Exp2", "Rsqrt", "Reciprocal"):
        table[name] = Kind(name.lower(), (), "result")
    for name in ("Softmax", "LogSoftmax"):
        table[name] = Kind("log_softmax" if name[0] == "L" else "softmax", (), "result")
    for name, operation in (
        ("MseLoss", "mse_loss"),
        ("SmoothL1Loss", "smooth_l1_loss"),
        ("HuberLoss", "huber_loss"),
        ("BinaryCrossEntropy", "binary_cross_entropy"),
        ("SoftMarginLoss", "soft_margin_loss"),
    ):
        table[name] = Kind(operation, ("self", "target", "reduction"))
    return table


KINDS = _kinds()
"""By node name without `Backward` and its number."""

STEEP = frozenset(
    {"Sqrt", "Pow", "Hypot", "Acos", "Asin", "Acosh", "Xlogy", "LinalgEigh", "LinalgSvd"}
)
"""Kinds with an infinite derivative at a finite result: kept to the step's end on every step."""
STEEP_IF_DROPPED = frozenset({
    "Div", "Log", "Log1P", "Log2", "Log10", "Logit", "Atanh", "Erfinv", "Exp", "Expm1", "Exp2",
    "Sinh", "Cosh", "Rsqrt", "Reciprocal", "Std", "StdMean", "Logsumexp", "Softmax",
    "LogSoftmax", "Norm", "LinalgVectorNorm", "MseLoss", "SmoothL1Loss", "HuberLoss",
    "BinaryCrossEntropy", "Abs", "CtcLoss", "BinaryCrossEntropyWithLogits", "NllLoss", "Lgamma",
    "Mul",
})  # fmt: skip
"""Kinds kept where something between them and the loss can throw a non-finite result away."""
DROPPING = frozenset({
    "Where", "MaskedFill", "MaskedSelect", "Index", "IndexSelect", "Gather", "Select", "Slice",
    "Clamp", "ClampMin", "ClampMax", "Relu", "Threshold", "Minimum", "Maximum", "Max", "Min",
    "Amax", "Amin", "Topk", "Sort", "Kthvalue", "Median", "NanToNum", "Nansum", "IndexPut",
    "MaskedScatter", "NllLoss", "Tanh", "Sigmoid", "Fmin", "Fmax", "Hardtanh",
})  # fmt: skip
"""Kinds whose result can be finite although an operand is not."""


def stem(name: str) -> str:
    """Return `Sqrt` for `SqrtBackward0`."""
    return name.partition("Backward")[0]


def is_custom(node: Any) -> bool:
    """Whether the node belongs to a `torch.autograd.Function` of the user."""
    return hasattr(node, "_forward_cls")


def saved(node: Any, attribute: str) -> Any:
    """Return what `node` saved, or None: freed, or behind saved-tensor hooks.

    Hooks mean checkpointing or offloading; unpacking would run code of the user again, so what
    they packed is not touched.
    """
    try:
        raw = getattr(node, f"_raw_saved_{attribute}", None)
        value = getattr(node, f"_saved_{attribute}", None) if raw is None else raw.data
    except RuntimeError:
        return None
    return value.detach() if isinstance(value, Tensor) else value


@dataclass(frozen=True, slots=True)
class Plan:
    """How nodes of one type are read, resolved once."""

    name: str
    stem: str
    is_steep: bool
    is_steep_if_dropped: bool
    is_dropping: bool
    is_mask: bool
    custom: str | None
    raw: tuple[tuple[str, str], ...]
    """Saved tensors: our name and torch's."""
    plain: tuple[tuple[str, str], ...]
    """Saved numbers: our name and torch's."""

    def read(self, node: Any) -> dict[str, Any]:
        """Return what `node` saved, without its graph; nothing that hooks packed."""
        values: dict[str, Any] = {}
        for name, attribute in self.raw:
            raw = getattr(node, attribute)
            if isinstance(raw, tuple):
                continue
            value = raw.data
            if isinstance(value, Tensor):
                values[name] = value.detach() if value.requires_grad else value
        for name, attribute in self.plain:
            value = getattr(node, attribute)
            values[name] = value.detach() if isinstance(value, Tensor) else value
        return values


PLANS: dict[type, Plan] = {}
"""By node type; filled as types are met. Types of torch are few, so this stays small."""
MASKING = frozenset({"Where", "MaskedFill", "Mul"})


def plan_of(node: Any) -> Plan:
    """Work out how nodes of this type are read, and remember it."""
    name = node.name()
    key = stem(name)
    kind = KINDS.get(key)
    names = (*kind.arguments, *((kind.result,) if kind.result else ())) if kind else ()
    extra = (("numel", "_saved_self_sym_numel"),) if key == "Mean" else ()
    custom = node._forward_cls.__name__ if is_custom(node) else None  # noqa: SLF001
    plan = Plan(
        name=name,
        stem=key,
        is_steep=key in STEEP or custom is not None,
        is_steep_if_dropped=key in STEEP or key in STEEP_IF_DROPPED or custom is not None,
        is_dropping=key in DROPPING,
        is_mask=key in MASKING,
        custom=custom,
        raw=tuple(
            (one, f"_raw_saved_{one}") for one in names if hasattr(node, f"_raw_saved_{one}")
        ),
        plain=tuple(
            (one, attribute)
            for one, attribute in (*((n, f"_saved_{n}") for n in names), *extra)
            if attribute in dir(type(node)) and not hasattr(node, f"_raw_saved_{one}")
        ),
    )
    if custom is None:  # classes of the user may be made anew each step
        PLANS[type(node)] = plan
    return plan


@dataclass(frozen=True, slots=True)
class Mask:
    """Something between a node and the loss that throws part of its result away."""

    operation: str
    kept: Tensor | None
    """Says where the result is thrown away; None where that is not known."""
    is_dropped: bool = True
    """The truth value of `kept` at which the result is thrown away."""

    @property
    def dropped(self) -> Tensor | None:
        """Bool, true where the result is thrown away."""
        return None if self.kept is None else self.kept.bool() == self.is_dropped


Paths = tuple[tuple[Mask, ...], ...]
"""For each operation that uses a result: what throws parts of it away on its way to the loss."""


@dataclass(frozen=True, slots=True)
class History:
    """What stands behind the first operand of an operation (of a division: the divisor)."""

    makers: tuple[str, ...] = ()
    """Node stems, nearest first."""
    is_rounded: bool = False
    """Whether float16 rounded a number to 0 there that was none."""
    is_masked: bool = False
    """Whether a mask, or something without a gradient, was filled in or added there."""
    is_half: bool = False
    """Whether it was a float16 number at some point."""
    is_from_model: bool = False
    """Whether it comes out of a watched model."""
    is_output: bool = False
    """Whether it is the output of a watched model, seen through views and casts only."""


@dataclass(slots=True)
class SavedNode:
    """What one node saved, detached from the graph."""

    name: str
    sequence: int
    values: Mapping[str, Any]
    paths: Paths = ()
    custom: str | None = None
    is_fed_by_model: bool = False
    """Whether an operand comes straight out of a watched model."""
    open_operands: int = 0
    """Operands without a graph: data, targets, constants."""
    past: History = field(default_factory=History)
    """How the first operand (of a division: the divisor) was made."""
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


def read(node: Any, paths: Paths = ()) -> SavedNode:
    """Copy references to what `node` saved; the node itself is not kept."""
    plan = PLANS.get(type(node)) or plan_of(node)
    number = node._sequence_nr()  # noqa: SLF001
    return SavedNode(plan.name, number, plan.read(node), paths, plan.custom)


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
    "smooth_l1_loss": lambda x, y, reduction: _reduced(
        F.smooth_l1_loss(x, y, reduction="none"), reduction
    ),
}  # fmt: skip
"""Elementwise operations whose result the graph does not keep."""
