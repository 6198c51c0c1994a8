# SPDX-License-Identifier: MIT
"""Terms that are always exactly 0: an empty mask, a comparison with itself, a wrong bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.objective.checks.detached import reach
from neuraldbg.capture.objective.losses import difference
from neuraldbg.capture.objective.reading import multiple, scalar
from neuraldbg.capture.objective.tape import NONE, Tape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.losses import Term
    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

ENOUGH = 8
"""Audited losses in a row, from the first on, without one that counts. Heuristic: a copy that
starts equal, or a rate that starts at 0, is another after one or two steps."""
SIZE_LIMIT = 1 << 22
"""Elements above which no tensor is looked through."""
LOOK_LIMIT = 64
"""Nodes between a mask and what it hides. Heuristic: a written-out loss has about ten."""
EMPTY, ITSELF, BOUND = "an empty mask", "a comparison with itself", "a bound never left"
COMPARED = frozenset({"MseLoss", "SmoothL1Loss", "HuberLoss"})
POSITIVE = frozenset(
    ("Abs", "Exp", "Softplus", "Sigmoid", "Softmax", "LinalgVectorNorm", "Norm", "Sqrt", "Relu")
)
"""Operations whose results are never negative."""
KEEPING = frozenset({"Mean", "Sum", "View", "UnsafeView", "Squeeze", "Unsqueeze", "Expand"})
"""Operations that keep the sign of what they are given."""


class IdleTerm:
    """Reports terms that weigh nothing, though their weight in the loss is not 0.

    Only what cannot be meant: a hinge that is met, a barrier that is never touched, and a weight of
    0 are none. Whether an empty mask does harm is for the causes: they see whether parameters that
    only this term reaches ever get a gradient.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], int] = {}
        """How often each term was idle; -1 once it was not, or has been told."""

    def observe(self, view: View) -> Iterable[Observation]:
        """Ask of each term why it is 0, if it is."""
        if len(self._seen) > LOOK_LIMIT:
            return
        pending = [
            (at, term)
            for at, term in enumerate(view.terms)
            if term.factor != 0.0 and self._seen.setdefault((view.signature, at), 0) >= 0
        ]
        empty = _hidden(view) if pending else set()
        for at, term in pending:
            key = view.signature, at
            reason = _reason(view, term, empty)
            self._seen[key] = self._seen[key] + 1 if reason else -1
            if reason and self._seen[key] == ENOUGH:
                self._seen[key] = -1
                yield self._observation(view, at, reason)

    def _observation(self, view: View, at: int, reason: str) -> Observation:
        reached = reach(view.tape, view.objective)
        alone = reached[at].difference(*(r for i, r in enumerate(reached) if i != at))
        is_part = len(alone) < len(frozenset().union(*reached))
        owners = (
            path
            for path, module in view.modules.items()
            if is_part and any(id(p) in alone for p in module.parameters(recurse=False))
        )
        owner = next(owners, None)
        return view.observation(
            "constant_term",
            view.layer_of(view.terms[at].feed) if owner is None else owner,
            is_since_first=True,
            confidence=0.8,
            figures={"value": 0.0, "losses": ENOUGH, "alone": len(alone)},
            cause="constant_loss_term",
            term=view.terms[at].name,
            reason=reason,
        )


def _reason(view: View, term: Term, empty: set[int]) -> str | None:
    """Return why a term is 0 whatever the model says, None where it is not or may be meant."""
    tape, at = view.tape, term.place
    if at in empty:
        return EMPTY
    if term.feed != NONE and tape.names[term.feed] == "AccumulateGrad":
        return None  # a weight held to its start, which has not moved
    if tape.names[at] in COMPARED:
        given, target = _small(tape.saved(at, "self")), _small(tape.saved(at, "target"))
        if given is None or target is None or given.shape != target.shape:
            return None
        return ITSELF if torch.equal(given, target) else None
    inside = difference(tape, at)
    if inside != NONE:
        apart = _small(tape.saved(at, "self"))
        return ITSELF if apart is not None and not bool(apart.any()) else None
    return BOUND if _is_out_of_bounds(tape, at) or _is_whole(view, at) else None


def _small(value: object) -> torch.Tensor | None:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return value if 0 < value.numel() <= SIZE_LIMIT else None


def _hidden(view: View) -> set[int]:
    """Return the nodes that reach the loss only through an empty mask behind the outputs."""
    tape = view.tape
    shut = [place for place in sorted(view.above) if _is_shut(tape, place)]
    if not shut:
        return set()
    open_, todo, closed = {0}, [0], set(shut)
    for place in todo:
        fresh = [i for i in tape.inputs[place] if i not in {NONE, *closed} and i not in open_]
        open_.update(fresh)
        todo.extend(fresh)
    found: set[int] = set()
    todo = [i for place in shut for i in (place, *tape.inputs[place])]
    for place in todo[:LOOK_LIMIT]:
        if place != NONE and place not in open_ and place not in found:
            found.add(place)
            todo.extend(tape.inputs[place])
    return found


def _is_shut(tape: Tape, place: int) -> bool:
    """Return whether nothing passes this node: a mask of zeros, or no row picked."""
    name, below = tape.names[place], tape.inputs[place]
    if name == "Mul" and below.count(NONE) == 1:
        mask = _small(tape.saved(place, "other" if below[0] != NONE else "self"))
        return mask is not None and mask.numel() > 1 and not bool(mask.any())
    if name in {"Index", "MaskedSelect", "IndexSelect"}:
        return 0 in (tape.shape(place) or ())
    if name == "Where" and below.count(NONE) == 1:
        shown = _small(tape.saved(place, "condition"))
        return shown is not None and not bool((shown if below[0] != NONE else ~shown).any())
    if name == "MaskedFill":
        filled = _small(tape.saved(place, "mask"))
        return filled is not None and bool(filled.all())
    return False


def _is_out_of_bounds(tape: Tape, place: int) -> bool:
    """Return whether a clamp or ReLU keeps only what its argument can never be."""
    name, below = tape.names[place], tape.inputs[place]
    if name == "Relu":
        return _sign(tape, below[0]) < 0
    if name in {"Clamp", "ClampMax"}:
        top = scalar(tape.saved(place, "max"))
        return top is not None and top <= 0.0 and _sign(tape, below[0]) > 0
    if name == "ClampMin":
        low = scalar(tape.saved(place, "min"))
        return low is not None and low >= 0.0 and _sign(tape, below[0]) < 0
    return False


def _sign(tape: Tape, place: int) -> int:
    """Return 1 where the value at `place` is never negative, -1 where never positive, else 0."""
    flip = 1
    for _ in range(LOOK_LIMIT):
        if place == NONE:
            return 0
        name, below = tape.names[place], tape.inputs[place]
        is_even = name == "Pow" and (scalar(tape.saved(place, "exponent")) or 1.0) % 2 == 0
        is_square = name == "Mul" and len(below) == 2 and below[0] == below[1] != NONE
        if name in POSITIVE or name in COMPARED or is_even or is_square:
            return flip
        at, by = multiple(tape, place) or (0, -1.0 if name == "Neg" else 1.0 * (name in KEEPING))
        if not by:
            return 0
        flip, place = flip if by > 0 else -flip, below[at]
    return 0


def _is_whole(view: View, place: int) -> bool:
    """Return whether the whole loss is what a ReLU or clamp left, and that is 0."""
    if len(view.terms) > 1 or view.objective.constants or view.loss != 0.0:
        return False
    return view.tape.names[place] in {"Relu", "ClampMin", "Clamp"}
