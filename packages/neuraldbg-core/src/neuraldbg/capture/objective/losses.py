# SPDX-License-Identifier: MIT
"""The loss functions at the end of the graph: which they are, and what enters them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from neuraldbg.capture.objective.activations import VIEWS
from neuraldbg.capture.objective.reading import is_distribution, rows, scalar
from neuraldbg.capture.objective.tape import NONE, Tape

FUSED = {
    "NllLoss": "nll",
    "NllLoss2D": "nll",
    "MseLoss": "mse",
    "SmoothL1Loss": "smooth_l1",
    "HuberLoss": "huber",
    "BinaryCrossEntropy": "bce",
    "BinaryCrossEntropyWithLogits": "bce_with_logits",
    "SoftMarginLoss": "soft_margin",
    "MultiMarginLoss": "multi_margin",
    "MultilabelMarginLoss": "multilabel_margin",
    "CtcLoss": "ctc",
}
"""Node -> loss function, for those that torch computes in one node."""

REGRESSIONS = frozenset({"mse", "l1", "smooth_l1", "huber"})
FLOORS = dict.fromkeys((*FUSED.values(), "cross_entropy", "l1"), 0.0) | {"nll": float("nan")}
"""Lowest value that each can take; NaN where it depends on what enters."""
REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}
TERM_LIMIT = 24
_PASSED = frozenset({*VIEWS, "Index", "IndexSelect", "MaskedSelect", "MaskedFill"})
_OFFSETS = frozenset({"Pow", "Abs"})


@dataclass(frozen=True, slots=True)
class Term:
    """One summand of the loss."""

    name: str
    """Loss function, or the operation in lower case where none is recognised."""
    place: int
    """Its node."""
    feed: int
    """The node whose value entered as the prediction, views looked through; `NONE`: unknown."""
    factor: float | None
    """By which it enters the loss, with sign; None where that is not a constant."""
    reduction: str
    """`mean`, `sum` or `none`, the outermost one."""
    is_divided: bool = False
    """Whether a constant divides it after its sum."""
    is_weighted: bool = False
    """Whether a tensor multiplies its elements before they are reduced (masks, advantages)."""
    has_negative_weights: bool = False
    """Whether some of those factors are negative: they praise and blame, and hide nothing."""
    summed: int = 1
    """Elements that sums add up into one: the loss is so many times the mean of its elements."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The loss as a sum of terms."""

    terms: tuple[Term, ...]
    constants: int = 0
    """Summands that carry no gradient at all."""


@dataclass(slots=True)
class _Part:
    place: int
    factor: float | None = 1.0
    reduction: str = "none"
    is_divided: bool = False
    is_weighted: bool = False
    has_negative_weights: bool = False
    summed: int = 1

    def at(self, place: int, **changes: Any) -> _Part:
        return replace(self, place=place, **changes)

    def scaled(self, by: float | None) -> float | None:
        return None if by is None or self.factor is None else self.factor * by


def objective_of(tape: Tape) -> Objective:
    """Split the loss into its summands and recognise each."""
    todo, constants = [_Part(0)], 0
    terms: list[Term] = []
    while todo and len(terms) < TERM_LIMIT:
        part = todo.pop()
        if part.place == NONE:
            constants += 1
            continue
        below = None if recognise(tape, part.place) else _open(tape, part)
        if below is None:
            terms.append(_term(tape, part))
        else:
            todo.extend(reversed(below))
    return Objective(tuple(terms), constants)


def _open(tape: Tape, part: _Part) -> list[_Part] | None:  # noqa: PLR0911 - one line per operation
    """Return what the sum, mean, scale or view at `part` is made of, None where it is none."""
    name, below = tape.names[part.place], tape.inputs[part.place]
    if name in {"Add", "Sub"} and len(below) == 2:
        flip = 1.0 if name == "Add" else -1.0
        return [part.at(below[0]), part.at(below[1], factor=part.scaled(flip))]
    if name == "Neg":
        return [part.at(below[0], factor=part.scaled(-1.0))]
    if name in {"Mean", "Nanmean"}:
        return [part.at(below[0], reduction="mean")]
    if name in {"Sum", "Nansum"}:
        kept = part.reduction if part.reduction == "mean" else "sum"
        added = _count(tape, below[0]) // max(_count(tape, part.place), 1)
        return [part.at(below[0], reduction=kept, summed=part.summed * max(added, 1))]
    if name in {"Mul", "Div"}:
        return _scaled(tape, part)
    if name in {"Stack", "Cat"} and all(_is_single(tape, i) for i in below):
        return [part.at(i) for i in below]
    if name in _PASSED and below and below[0] != NONE:
        return [part.at(below[0])]
    return None


def _scaled(tape: Tape, part: _Part) -> list[_Part] | None:
    """Look through a product with, or a quotient by, something without gradient."""
    name, below = tape.names[part.place], tape.inputs[part.place]
    carried = [i for i in below if i != NONE]
    if len(carried) != 1 or (name == "Div" and below[0] == NONE):
        return None
    by_name = "other" if below[0] != NONE else "self"
    other = tape.saved(part.place, by_name)
    by = scalar(other)
    if by is None and isinstance(other, torch.Tensor) and other.numel() > 1:
        weighs = {"is_weighted": True, "has_negative_weights": _is_negative(other)}
        return [part.at(carried[0], factor=part.scaled(1.0), **weighs)]
    if name == "Mul":
        return [
            part.at(carried[0], factor=part.scaled(by), is_divided=part.is_divided or _small(by))
        ]
    return [part.at(carried[0], factor=part.scaled(1 / by if by else None), is_divided=True)]


def _is_negative(weights: torch.Tensor) -> bool:
    values = rows(weights)
    return values is not None and bool((values < 0).any())


def _small(by: float | None) -> bool:
    return by is not None and abs(by) < 0.5


def _count(tape: Tape, place: int) -> int:
    """Return the elements of what the node at `place` computed, 1 where that is not known."""
    shape = tape.shape(place) if place != NONE else None
    return math.prod(shape) if shape is not None else 1


def _is_single(tape: Tape, place: int) -> bool:
    shape = tape.shape(place) if place != NONE else ()
    return shape is not None and all(size == 1 for size in shape)


def difference(tape: Tape, place: int) -> int:
    """Return the subtraction under a squared or absolute difference, `NONE` where there is none."""
    name, below = tape.names[place], tape.inputs[place]
    squared = name == "Pow" and scalar(tape.saved(place, "exponent")) == 2.0
    squared = squared or (name == "Mul" and len(below) == 2 and below[0] == below[1] != NONE)
    if not (squared or name == "Abs") or below[0] == NONE:
        return NONE
    inside = tape.through(below[0])
    return inside if inside != NONE and tape.names[inside] in {"Sub", "Rsub"} else NONE


def _is_log_prob(tape: Tape, place: int) -> bool:
    inside = tape.through(place)
    if inside == NONE:
        return False
    if tape.names[inside] == "LogSoftmax":
        return True
    below = tape.inputs[inside]
    return (
        tape.names[inside] == "Sub"
        and len(below) == 2
        and below[1] != NONE
        and tape.names[tape.through(below[1])] == "Logsumexp"
    )


def _are_log_probs(tape: Tape, below: tuple[int, ...]) -> bool:
    """Whether all that is put together are logarithms of how likely choices were: an episode's."""
    parts = [tape.through(part) for part in below]
    return bool(parts) and all(
        part != NONE
        and tape.names[part] in {"Gather", "Index"}
        and bool(tape.inputs[part])
        and _is_log_prob(tape, tape.inputs[part][0])
        for part in parts
    )


def _is_clipped_ratio(tape: Tape, sides: tuple[int, ...]) -> bool:
    """Whether both sides weigh one ratio of probabilities, on one of them clamped (PPO)."""
    clamped = []
    for side in sides:
        place = tape.through(side)
        while place != NONE and tape.names[place] in {"Mul", "Neg"}:
            place = tape.through(max(tape.inputs[place]))
        is_clamped = place != NONE and tape.names[place] == "Clamp"
        place = tape.through(tape.inputs[place][0]) if is_clamped else place
        if place == NONE or tape.names[place] != "Exp":
            return False
        clamped.append(is_clamped)
    return sorted(clamped) == [False, True]


def recognise(tape: Tape, place: int) -> str | None:  # noqa: PLR0911 - one line per loss
    """Return the loss function that ends at `place`, None where it is none."""
    name, below = tape.names[place], tape.inputs[place]
    if name in FUSED:
        inside = tape.through(below[0]) if below else NONE
        is_log = inside != NONE and tape.names[inside] == "LogSoftmax"
        return "cross_entropy" if FUSED[name] == "nll" and is_log else FUSED[name]
    if difference(tape, place) != NONE:
        return "l1" if name == "Abs" else "mse"
    if name in {"Gather", "Index"} and below and _is_log_prob(tape, below[0]):
        return "log_probability"
    if name in {"Stack", "Cat"} and _are_log_probs(tape, below):
        return "log_probability"
    if name in {"Minimum", "Maximum"} and _is_clipped_ratio(tape, below):
        return "clipped_surrogate"
    if name == "Mul" and NONE in below and _is_log_prob(tape, max(below)):
        return "soft_cross_entropy"
    if name == "Sub" and len(below) == 2 and below[0] == NONE and below[1] != NONE:
        inner = tape.inputs[below[1]]
        if tape.names[below[1]] == "Mul" and len(inner) == 2 and inner.count(NONE) == 1:
            return "kl_div" if _is_target_distribution(tape, below[1]) else None
    return None


def _is_target_distribution(tape: Tape, place: int) -> bool:
    inner = tape.inputs[place]
    values = rows(tape.saved(place, "self" if inner[0] == NONE else "other"))
    return values is not None and values.ndim > 0 and is_distribution(values, values.ndim - 1)


def _term(tape: Tape, part: _Part) -> Term:
    place, name = part.place, tape.names[part.place]
    kind = recognise(tape, place)
    below = tape.inputs[place]
    feed = below[0] if below and kind else place
    if kind in {"mse", "l1"} and name not in FUSED:
        sides = [i for i in tape.inputs[difference(tape, place)] if i != NONE]
        feed = sides[0] if sides else NONE
    elif kind == "kl_div":
        feed = max(tape.inputs[below[1]])
    elif kind == "soft_cross_entropy":
        feed = max(below)
    elif kind == "log_probability" and name in {"Stack", "Cat"}:
        feed = tape.inputs[tape.through(below[0])][0]
    reduction = part.reduction
    if name in FUSED:
        own = REDUCTIONS.get(tape.saved(place, "reduction"), "none")
        reduction = own if own != "none" else reduction
        if own == "sum":
            part.summed *= _count(tape, feed)
    return Term(
        name=kind or name.lower(),
        place=place,
        feed=tape.through(feed),
        factor=part.factor,
        reduction=reduction,
        is_divided=part.is_divided,
        is_weighted=part.is_weighted,
        has_negative_weights=part.has_negative_weights,
        summed=part.summed,
    )
