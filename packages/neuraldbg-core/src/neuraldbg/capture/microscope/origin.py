# SPDX-License-Identifier: MIT
"""Births and leaves, and the way back from a broken result to the one that started it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from neuraldbg.capture.microscope.verdict import NAN, NEGATIVE, Verdict, words_of

SOFTMAX = frozenset({"_softmax", "_log_softmax", "_safe_softmax", "logsumexp", "logcumsumexp"})
LINEAR = frozenset(
    {"mm", "addmm", "bmm", "convolution", "linear", "matmul", "mkldnn_linear", "mv", "dot"}
)
KEEPS_CAUSE = frozenset({"fully_masked_attention", "single_sample_statistics", "infeasible_target"})


@dataclass(frozen=True, slots=True)
class Leaf:
    """A non-finite tensor that no operation of the re-run made."""

    kind: str
    """`input`, `parameter`, `buffer`, `gradient` or `constant`."""
    name: str
    found: int
    tensor: Tensor


@dataclass(slots=True)
class Birth:
    """One operation with a non-finite result."""

    index: int
    operation: str
    layer: str
    phase: str
    found: int
    parents: list[tuple[Birth | Leaf, int]]
    verdict: Verdict | None = None
    is_deliberate: bool = False
    """Whether the infinity was asked for (a mask filled with -inf)."""
    keepalive: Any = None
    figures: dict[str, float] = field(default_factory=dict)


def origin(birth: Birth | Leaf) -> Birth | Leaf:
    """Return the birth from which a non-finite value descends.

    NaN is followed to the operation that had no NaN among its operands; from there on infinities
    are followed, unless they were asked for: then the operation that could not stand them is to
    blame (softmax over a row of -inf).
    """
    seen = set()
    while isinstance(birth, Birth) and id(birth) not in seen:
        seen.add(id(birth))
        parents = [(p, state) for p, state in birth.parents if not is_thrown_away(birth, p)]
        nans = [p for p, state in parents if state & NAN]
        if birth.found & NAN and nans:
            birth = min(nans, key=order)
            continue
        if (
            birth.operation in SOFTMAX
            and birth.verdict is not None
            and birth.verdict.mechanism == "fully_masked_row"
        ):
            return birth
        infs = [p for p, state in parents if not is_deliberate(p, birth.operation)]
        if not infs:
            return birth
        birth = min(infs, key=order)
    return birth


def is_thrown_away(birth: Birth, parent: Birth | Leaf) -> bool:
    """Whether a value that backward met was already broken in a forward whose result is finite."""
    if birth.phase != "backward":
        return False
    return (
        parent.phase == "forward"
        if isinstance(parent, Birth)
        else parent.kind not in {"gradient", "parameter"}
    )


def order(source: Birth | Leaf) -> float:
    """Earliest first; buffers last: a batch norm in training writes them and never reads them."""
    if isinstance(source, Birth):
        return source.index
    return float("inf") if source.kind == "buffer" else -1.0


def thrown_away(birth: Birth | Leaf) -> Birth | None:
    """Return the forward birth whose thrown-away result this backward birth met, or None."""
    if not isinstance(birth, Birth):
        return None
    for parent, _ in birth.parents:
        if isinstance(parent, Birth) and is_thrown_away(birth, parent):
            first = origin(parent)
            if isinstance(first, Birth) and not first.is_deliberate:
                return first
    return None


def as_masked(forward: Birth) -> Birth:
    """Return the birth to report where backward met the thrown-away result of `forward`.

    What is broken in itself (a fully masked row, one sample, an infeasible target) keeps its cause.
    """
    verdict = forward.verdict
    if verdict is None or verdict.cause in KEEPS_CAUSE:
        return forward
    words = (
        f"{verdict.argument}; the result is thrown away later, and its gradient is "
        f"0 * {words_of(forward.found)}"
    )
    masked = replace(
        verdict,
        mechanism=f"masked_{verdict.mechanism}",
        argument=words,
        cause="masked_nan_gradient",
        confidence=0.85,
    )
    return replace(forward, verdict=masked, phase="backward")


def as_grown(birth: Birth, words: str, ratio: float) -> Birth:
    """Return the birth to report where a gradient overflowed while it grew within its module."""
    verdict = birth.verdict
    if verdict is None or verdict.mechanism not in {"overflow", "undefined", "infinities_meet"}:
        return birth
    grown = replace(
        verdict,
        mechanism="gradient_overflow",
        argument=f"{words}, then left the range: {verdict.argument}",
        figures={**verdict.figures, "growth": ratio},
    )
    return replace(birth, verdict=grown)


def is_deliberate(source: Birth | Leaf, operation: str) -> bool:
    """Whether an infinity that `operation` met was asked for: a mask of -inf.

    A batch that holds -inf is no mask where a linear layer takes it.
    """
    if isinstance(source, Birth):
        return source.is_deliberate
    is_mask = source.kind in {"constant", "buffer", "input"} and source.found == NEGATIVE
    return is_mask and operation not in LINEAR
