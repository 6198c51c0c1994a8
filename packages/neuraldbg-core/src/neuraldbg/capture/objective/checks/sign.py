# SPDX-License-Identifier: MIT
"""A loss that is minimised with the wrong sign."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.capture.objective.losses import FLOORS, Term
from neuraldbg.capture.objective.reading import scalar
from neuraldbg.capture.objective.tape import NONE, Tape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

_LIKELIHOODS = frozenset({"log_probability", "soft_cross_entropy"})
SEARCH = 48
"""Operations looked at for the parts of a log-density."""


def squared_sign(tape: Tape, place: int) -> int:
    """Return the sign of `c * (x - data)^2 / s`, 0 where the node is none of that kind."""
    sign = 1
    for _ in range(6):
        place = tape.through(place)
        if place == NONE:
            return 0
        name, below = tape.names[place], tape.inputs[place]
        if name == "Neg":
            sign = -sign
        elif name in {"Mul", "Div"} and NONE in below and below.count(NONE) == 1:
            by = scalar(tape.saved(place, "other" if below[-1] == NONE else "self"))
            if by is not None and by < 0:
                sign = -sign
        elif name == "Pow":
            return sign if _reads_data(tape, below[0]) else 0
        elif name != "Div":
            return 0
        place = max(below[:1] or (NONE,)) if below[0] != NONE else max(below)
    return 0


def _reads_data(tape: Tape, place: int) -> bool:
    """Return whether a squared value is a difference from something without gradient."""
    for _ in range(3):
        place = tape.through(place)
        if place == NONE:
            return False
        if tape.names[place] in {"Sub", "Rsub"}:
            return NONE in tape.inputs[place] or tape.names[place] == "Rsub"
        if tape.names[place] not in {"Div", "Mul"}:
            return False
        place = tape.inputs[place][0]
    return False


def is_log_density(tape: Tape, place: int) -> bool:
    """Return whether the value at `place` adds up parts of a log-density.

    A negative square of a difference from data, or a log-softmax beside other parts.
    """
    todo, seen = [(place, 1)], 0
    for current, sign in todo:
        seen += 1
        here = tape.through(current) if current != NONE else NONE
        if here == NONE or seen > SEARCH:
            continue
        name, below = tape.names[here], tape.inputs[here]
        if sign * squared_sign(tape, here) < 0:
            return True
        if name in {"Add", "Sub"}:
            todo.append((below[0], sign))
            todo.extend((i, sign if name == "Add" else -sign) for i in below[1:])
        elif name in {"Sum", "Logsumexp"}:
            todo.append((below[0], sign))
        elif name == "LogSoftmax" and sign > 0 and seen > 1:
            return True
    return False


class NegativeTerm:
    """Reports an error measure with a negative factor, or a log-likelihood with a positive one.

    Minimising it makes the model worse without bound. Alone in the loss of a single model it is a
    fault; beside other terms, or among several models, it may be adversarial, and the confidence
    says so. Weighted log-probabilities (policy gradients) are silent;
    of a clipped surrogate (PPO) the bound itself tells which way it is meant.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at the sign of each recognised term."""
        for term in view.terms:
            if term.factor is None or term.is_weighted or term.name in self._told:
                continue
            if not self._is_wrong(view, term):
                continue
            self._told.add(term.name)
            is_one_model = "" in view.modules or not view.modules
            is_sure = is_one_model and len(view.terms) == 1
            yield view.observation(
                "negative_term",
                view.layer_of(term.feed),
                confidence=0.9 if is_sure or term.name == "clipped_surrogate" else 0.3,
                figures={"factor": term.factor, "terms": len(view.terms)},
                cause="wrong_loss_sign",
                loss=term.name,
            )

    def _is_wrong(self, view: View, term: Term) -> bool:
        factor = term.factor or 0.0
        if not math.isnan(FLOORS.get(term.name, math.nan)):
            return factor < 0
        if term.name in _LIKELIHOODS:
            return factor > 0
        if term.name == "clipped_surrogate":
            # The smaller of two gains is a bound to raise, the larger of two costs one to lower.
            return factor * (1 if view.tape.names[term.place] == "Minimum" else -1) > 0
        if len(view.terms) > 1:
            return False
        if squared_sign(view.tape, term.place) * factor < 0:
            return True
        return term.name == "logsumexp" and factor > 0 and is_log_density(view.tape, term.place)
