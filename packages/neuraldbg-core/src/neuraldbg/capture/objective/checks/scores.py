# SPDX-License-Identifier: MIT
"""Raw scores, or plain probabilities, where a loss wants probabilities or their logarithm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.objective.activations import WEIGHTED
from neuraldbg.capture.objective.reading import is_distribution, rows
from neuraldbg.capture.objective.tape import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from neuraldbg.capture.objective.losses import Term
    from neuraldbg.capture.objective.tape import Tape
    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation


def is_raw(tape: Tape, place: int, depth: int = 6) -> bool:
    """Return whether the value at `place` is a layer's scores, scaled by a number or added up."""
    place = tape.through(place)
    if place == NONE or not depth:
        return False
    name, below = tape.names[place], tape.inputs[place]
    carried = [each for each in below if each != NONE]
    if name in {"Add", "Sub"} or (name in {"Mul", "Div"} and below[0] != NONE == below[-1]):
        return bool(carried) and all(is_raw(tape, each, depth - 1) for each in carried)
    return name in WEIGHTED


def _class_axis(values: torch.Tensor) -> int:
    return 1 if values.ndim > 1 else 0


class ScoresIntoProbabilityLoss:
    """NLL and KL take log-probabilities, BCE takes probabilities.

    Log-values that are all negative and sum to less than 1 pass: mixtures and restricted
    vocabularies look like that.
    """

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at each NLL, KL divergence and binary cross-entropy."""
        for term in view.terms:
            if term.name == "nll":
                given, confidence = self._nll(view, term)
            elif term.name == "kl_div":
                given, confidence = self._kl(view, term)
            elif term.name == "bce":
                given, confidence = self._bce(view, term)
            else:
                continue
            if given:
                yield view.observation(
                    "scores_into_probability_loss",
                    view.layer_of(term.feed),
                    confidence=confidence,
                    cause="logits_into_probability_loss",
                    loss=term.name,
                    given=given,
                )

    def _nll(self, view: View, term: Term) -> tuple[str, float]:
        values = rows(view.tape.saved(term.place, "self"))
        if values is None or values.ndim == 0:
            return "", 0.0
        dim = _class_axis(values)
        if is_distribution(values, dim):
            return "probabilities", 0.9
        if values.shape[dim] < 2 or float(values.max()) <= 1e-3:
            return "", 0.0
        finite = values.isfinite().all(dim)
        return ("scores", 0.9) if bool(finite.all()) else ("", 0.0)

    def _kl(self, view: View, term: Term) -> tuple[str, float]:
        name = view.tape.names[term.feed] if term.feed != NONE else ""
        if name in {"Softmax", "Sigmoid"}:
            return "probabilities", 0.9
        return ("scores", 0.85) if is_raw(view.tape, term.feed) else ("", 0.0)

    def _bce(self, view: View, term: Term) -> tuple[str, float]:
        name = view.tape.names[term.feed] if term.feed != NONE else ""
        if name in {"Clamp", "ClampMin", "ClampMax", "Hardtanh", "Relu"}:
            below = view.tape.through(view.tape.inputs[term.feed][0])
            under = view.tape.names[below] if below != NONE else ""
            return ("clamped scores", 0.7) if under in WEIGHTED else ("", 0.0)
        return ("scores", 0.8) if is_raw(view.tape, term.feed) else ("", 0.0)
