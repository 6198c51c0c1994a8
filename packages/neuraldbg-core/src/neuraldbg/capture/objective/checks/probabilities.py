# SPDX-License-Identifier: MIT
"""Probabilities where a loss wants logits: softmax or sigmoid applied twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.objective.activations import LAYOUT
from neuraldbg.capture.objective.reading import rows, scalar
from neuraldbg.capture.objective.tape import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.losses import Term
    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

SHARPENED = 3.0
"""Factor from which a scale after the probabilities counts as deliberate.

Heuristic: probabilities times 3 already allow a cross-entropy close to 0.1 in two classes.
"""
_LINKS = {"Softmax": "softmax", "Sigmoid": "sigmoid"}
_PASSED = frozenset({"Clamp", "ClampMin", "ClampMax", *LAYOUT})
_WORDS = {"softmax": "double_softmax", "sigmoid": "sigmoid_before_logits_loss"}


def _link(view: View, place: int) -> tuple[int, str] | None:
    """Return the softmax or sigmoid that made the value at `place`, if one did."""
    for _ in range(8):
        place = view.tape.through(place)
        if place == NONE:
            return None
        name, below = view.tape.names[place], view.tape.inputs[place]
        if name in _LINKS:
            return place, _LINKS[name]
        if name in {"Mul", "Div"} and below.count(NONE) == 1 and below[0] != NONE:
            by = scalar(view.tape.saved(place, "other"))
            if by is None or (by if name == "Mul" else 1 / (by or 1.0)) >= SHARPENED:
                return None
        elif name not in _PASSED:
            return None
        place = below[0]
    return None


def _look(view: View, term: Term, place: int, kind: str, cause: str) -> Iterable[Observation]:
    found = _link(view, place)
    if found is None:
        return
    source, link = found
    values = rows(view.tape.saved(source, "result"))
    figures: dict[str, float] = {}
    if values is not None:
        figures = {"minimum": float(values.min()), "maximum": float(values.max())}
    shape = view.tape.shape(source)
    if shape:
        figures["classes"] = shape[1] if len(shape) > 1 else shape[0]
    yield view.observation(
        kind,
        view.layer_of(source),
        confidence=0.95,
        figures=figures,
        cause=cause,
        loss=term.name,
        applied=link,
    )


class ProbabilitiesIntoCrossEntropy:
    """Cross-entropy takes a softmax of its own.

    Over probabilities it cannot go below about log(1 + (K - 1) / e). A log-softmax before it
    changes nothing and is silent.
    """

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at each cross-entropy, fused or written by hand."""
        for term in view.terms:
            inside = NONE
            if term.name in {"cross_entropy", "soft_cross_entropy"}:
                inside = term.feed
            elif term.name == "log_probability":
                inside = view.tape.through(view.tape.inputs[term.place][0])
            if inside == NONE or view.tape.names[inside] != "LogSoftmax":
                continue
            below = view.tape.inputs[inside][0]
            found = _link(view, below)
            cause = _WORDS[found[1]] if found else ""
            yield from _look(view, term, below, "probabilities_into_cross_entropy", cause)


class ProbabilitiesIntoLogitsLoss:
    """A with-logits loss takes a sigmoid of its own.

    From values in [0, 1] it can only make probabilities of 0.5 to 0.73.
    """

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at each binary cross-entropy with logits and soft-margin loss."""
        for term in view.terms:
            if term.name in {"bce_with_logits", "soft_margin"}:
                yield from _look(
                    view,
                    term,
                    term.feed,
                    "probabilities_into_logits_loss",
                    "sigmoid_before_logits_loss",
                )
