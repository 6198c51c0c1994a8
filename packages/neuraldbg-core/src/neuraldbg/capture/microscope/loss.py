# SPDX-License-Identifier: MIT
"""Births in the user's loss code, judged from what its graph saved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.microscope.callers import caller_operation, caller_tensors
from neuraldbg.capture.microscope.region import NODES_FAILING, Intervals, Region, collect
from neuraldbg.capture.microscope.rules import judge
from neuraldbg.capture.microscope.steepness import (
    is_singular,
    judge_backward,
    judge_forward,
    judge_unread,
)
from neuraldbg.capture.microscope.verdict import (
    HALF,
    NAN,
    NEGATIVE,
    POSITIVE,
    Verdict,
    describe_nonfinite,
    flags,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg.capture.microscope.nodes import SavedNode

TARGETED = frozenset({"mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
                      "binary_cross_entropy_with_logits", "soft_margin_loss"})  # fmt: skip


SUMS_TO_ONE = 1e-3
"""Distance from 1 within which a row of shares adds up: rounding in half precision."""
LOGARITHMS = frozenset({"log", "log2", "log10", "log_"})


@dataclass(frozen=True, slots=True)
class Found:
    """A birth in the loss; not certain where an operand straight from a model may be broken."""

    verdict: Verdict
    is_certain: bool


def is_scale_overflow(loss: Tensor) -> bool:
    """Whether only the multiplication by the loss scale left the range: the scaler's business."""
    node: Any = loss.grad_fn
    if node is None or not node.name().startswith("MulBackward"):
        return False
    factor = getattr(node, "_saved_other", None)
    if not isinstance(factor, Tensor) or factor.numel() != 1 or not float(factor):
        return False
    return loss.dtype in HALF and bool(torch.isinf(loss).any()) and not flags(factor)


def examine(loss: Tensor, models: Intervals) -> Found | None:
    """Find where a loss that is not finite lost it, among the operations outside the models."""
    if loss.grad_fn is None:
        return None
    region = collect([loss.grad_fn], models, everything=True)
    return examine_region(region, loss)


def examine_region(region: Region, loss: Tensor) -> Found | None:
    """Judge collected nodes, earliest first."""
    late: Found | None = None
    masked: Found | None = None
    for node in region.nodes:
        broken = node.nonfinite_arguments()
        if broken:
            if _is_asked_for(node, broken):
                masked = masked or _masked(node)
            elif not is_harmless(node):
                late = late or _operand(node, broken)
            continue
        verdict, is_known = judge_forward(node)
        if verdict is None:
            continue
        if (
            verdict.mechanism in {"overflow", "half_overflow", "infinities_meet"}
            and late is not None
        ):
            continue
        if late is not None and late.is_certain:
            return late
        certain = (is_known or not node.is_fed_by_model) and late is None
        return Found(verdict, certain)
    if late is None and loss.dtype is torch.float16 and bool(torch.isinf(loss).any()):
        words = "the loss left the range of float16 (65504)"
        late = Found(
            Verdict("sum", "half_overflow", words, "half_precision_overflow", 0.6), is_certain=False
        )
    return late or masked


def _is_asked_for(node: SavedNode, broken: list[tuple[str, Tensor]]) -> bool:
    """Whether a mask of -inf went in and nothing worse came out, as far as that is known."""
    result = node.result
    is_mask = node.past.is_masked and all(flags(value) == NEGATIVE for _, value in broken)
    return is_mask and (result is None or flags(result) == NEGATIVE)


def _masked(node: SavedNode) -> Found | None:
    """Suspect rows that a mask closed, for where nothing else is found."""
    result = node.result
    verdict = judge(node.kind.operation, node.arguments, result) if result is not None else None
    return Found(replace(verdict, confidence=0.5), is_certain=False) if verdict else None


def is_harmless(node: SavedNode) -> bool:
    """Whether an operation's result is finite although an operand is not: a mask of -inf."""
    if node.operation == "nll_loss":
        scores, target = node.values.get("self"), node.values.get("target")
        if not isinstance(scores, Tensor) or not isinstance(target, Tensor):
            return False
        counted = target != node.values.get("ignore_index", -100)
        places = target.where(counted, 0).unsqueeze(min(1, scores.dim() - 1))
        picked = scores.gather(min(1, scores.dim() - 1), places).squeeze(min(1, scores.dim() - 1))
        return not flags(picked[counted])
    result = node.result
    return result is not None and not flags(result)


def _operand(node: SavedNode, broken: list[tuple[str, Tensor]]) -> Found | None:
    """Blame a broken operand that has no graph: a target, a weight, a mask."""
    names = [name for name, _ in broken]
    if node.operation in TARGETED and "self" not in names and "target" in names:
        value = dict(broken)["target"]
        return Found(
            _target(node.operation, "target", value, "degenerate_targets", 0.8), is_certain=True
        )
    if node.past.is_output and names[0] == node.kind.arguments[0] and node.operation != "div":
        return Found(_unrepeated(node.operation, broken[0][1]), is_certain=False)
    makers = node.past.makers
    if "Exp" in makers and {"Sum", "Mean"} & set(makers[: makers.index("Exp")]):
        words = f"the sum of exponentials that {node.operation} received is not finite"
        return Found(
            Verdict(
                "exp",
                "exp_overflow",
                words,
                "exp_overflow",
                0.8,
                describe_nonfinite(broken[0][1])[1],
            ),
            is_certain=False,
        )
    name, value = broken[-1 if node.open_operands else 0]
    return Found(_target(node.operation, name, value, _suspect(node, value), 0.4), is_certain=False)


def _suspect(node: SavedNode, value: Tensor) -> str:
    """Return what most likely broke an operand that was computed without a graph.

    Heuristic: a batch of one that is NaN was standardised by its own deviation, which one value
    does not have; rows that are shares of their sum, but for some that are NaN, had a sum of 0.
    """
    state = flags(value)
    if state & NAN and value.dim() and value.shape[0] == 1 and bool(value.isnan().all()):
        return "single_sample_statistics"
    if state & NAN and _is_share(value):
        return "division_by_zero"
    if state & NAN or not node.open_operands:
        return "degenerate_targets"
    return "division_by_zero" if state & POSITIVE else "log_of_nonpositive"


def _is_share(value: Tensor) -> bool:
    """Whether rows are NaN throughout or add up to 1."""
    if value.dim() < 2:
        return False
    lost = value.isnan().flatten(0, -2)
    whole = value.flatten(0, -2)[~lost.any(1)].sum(1)
    is_whole_row = bool((lost.any(1) == lost.all(1)).all())
    return is_whole_row and whole.numel() > 0 and bool(((whole - 1).abs() < SUMS_TO_ONE).all())


def _unrepeated(operation: str, value: Tensor) -> Verdict:
    """Say that a model gave what it does not give when it runs again; nothing else was found."""
    text, figures = describe_nonfinite(value)
    words = (
        f"the model's output that {operation} received holds {text}, and running the model again "
        "gave finite values: it depends on something that has changed since"
    )
    return Verdict(operation, "not_repeated", words, None, 0.3, figures)


def _target(operation: str, name: str, value: Tensor, cause: str, confidence: float) -> Verdict:
    text, figures = describe_nonfinite(value)
    local = next((n for n, t in caller_tensors() if t.shape == value.shape and flags(t)), None)
    called = f" (`{local}`)" if local else ""
    words = f"the {name} of {operation}{called} holds {text}, although the model's output is finite"
    if not flags(value) & POSITIVE and (maker := caller_operation(LOGARITHMS)):
        words += f"; the loop takes a logarithm ({maker}): of zero it is -inf, of less NaN"
    return Verdict(operation, "nonfinite_target", words, cause, confidence, figures)


def judge_backward_regions(regions: Sequence[Region]) -> Verdict | None:
    """Find where a finite loss lost its gradient, among the operations outside the models.

    Backward runs from the last node to the first, so that is the order of suspicion.
    """
    custom = None
    with torch.no_grad():
        for region in reversed(regions):
            for node in reversed(region.nodes):
                if node.custom is not None:
                    custom = custom or node.custom
                    continue
                verdict = judge_backward(node)
                if verdict is not None:
                    return verdict
    if custom is None:
        return None
    words = (
        f"the backward of custom function {custom} makes a non-finite gradient; "
        "nothing else there can"
    )
    return Verdict(custom, "custom_backward", words, "custom_backward_wrong", 0.7)


def judge_names(graph: Any) -> Verdict | None:
    """Name the one kind of operation that can have broken a gradient, in a graph that is gone.

    Backward has let go of what its operations saved, but not of what they are.
    """
    region = collect([graph], Intervals(), limit=NODES_FAILING)
    kinds = {node.operation: node for node in region.nodes if is_singular(node)}
    if len(kinds) != 1 or not region.is_complete:
        return None
    (node,) = kinds.values()
    return judge_unread(node)


def judge_range(gradient: Tensor) -> Verdict | None:
    """Judge a float16 gradient that came out of a finite loss with an Inf and nothing steep."""
    if gradient.dtype is not torch.float16 or not flags(gradient) & (POSITIVE | NEGATIVE):
        return None
    text, figures = describe_nonfinite(gradient)
    words = (
        f"the gradient that left the loss holds {text}: no operation there is at a singular point, "
        "so a product of factors left the range of float16 (65504)"
    )
    name = "loss (backward)"
    return Verdict(name, "half_overflow", words, "half_precision_overflow", 0.6, figures)


def examine_locals(error: BaseException, models: Intervals) -> Found | None:
    """Look at the tensors with a graph in the frames of a traceback, the innermost first."""
    tensors: list[Tensor] = []
    trace = error.__traceback__
    while trace is not None:
        for value in list(trace.tb_frame.f_locals.values()):
            if (
                isinstance(value, Tensor)
                and value.grad_fn is not None
                and value.is_floating_point()
            ):
                tensors.insert(0, value)
        trace = trace.tb_next
    for tensor in tensors:
        if flags(tensor):
            with torch.no_grad():
                found = examine(tensor, models)
            if found is not None:
                return found
    return None
