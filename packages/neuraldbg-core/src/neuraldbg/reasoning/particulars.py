# SPDX-License-Identifier: MIT
"""What capture noted beside a fault that it saw, as the clause that follows the sentence on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.cause import figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.schema.facts import Observation

MOST = 5
"""Figures that are told of a kind without a clause of its own."""
LONG = 60
"""Characters from which a word is a text of its own."""


def particulars(note: Observation) -> str:
    """Return the clause of an observation, without brackets; empty where there is nothing to add.

    Example:
        >>> from neuraldbg.schema.facts import Observation
        >>> particulars(Observation("any", 0, None, {"share_of_it": 0.25}, {"which": ""}))
        'share of it 0.25'
    """
    clause = CLAUSES.get(note.kind)
    told = clause(note) if clause is not None else ""
    return told or _listed(note)


def _listed(note: Observation) -> str:
    parts = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in note.words.items()
        if name != "cause" and 0 < len(value) < LONG
    ]
    parts += [
        f"{name.replace('_', ' ')} {figure(value)}"
        for name, value in note.figures.items()
        if name != "confidence"
    ]
    return "; ".join(parts[:MOST])


def _summed(note: Observation) -> str:
    if not {"summed", "samples"} <= set(note.figures) or "loss" not in note.words:
        return ""
    summed, over = note.figures["summed"], note.words.get("over", "elements")
    where = f"the batch has {note.figures['samples']:.0f} samples"
    others = ", and other terms are averaged" if note.words.get("others") else ""
    return f"{note.words['loss']} sums {summed:.0f} values over {over}, {where}{others}"


def _foreign(note: Observation) -> str:
    if not {"stale", "tensors"} <= set(note.figures):
        return ""
    name = note.words.get("optimizer", "the optimizer")
    alike = note.figures.get("same_shape", 0.0)
    same = f", {alike:.0f} of them as large as a parameter of the model" if alike else ""
    stale, held = note.figures["stale"], note.figures["tensors"]
    return f"{stale:.0f} of the {held:.0f} tensors that {name} holds{same}"


STATES = {
    "one-hot": "the softmax is one-hot",
    "flat": "the softmax is uniform",
    "overflow": "the exponential overflows",
}


def _temperature(note: Observation) -> str:
    if "temperature" not in note.figures:
        return ""
    state, reads = STATES.get(note.words.get("softmax", ""), ""), note.words.get("reads")
    parts = [f"the temperature is {figure(note.figures['temperature'])}"]
    parts += [state] if state else []
    parts += [f"it reads layer {reads!r}"] if reads else []
    return ", ".join(parts)


def _frozen(note: Observation) -> str:
    share = note.figures.get("share")
    return "" if share is None else f"{share:.0%} of all parameters are frozen"


def _fresh(note: Observation) -> str:
    name = note.words.get("optimizer")
    return f"the optimizer is {name}" if name else ""


def _idle(note: Observation) -> str:
    reason = note.words.get("reason")
    return (
        f"the {note.words.get('term', 'term')} is exactly 0 on every step: {reason}"
        if reason
        else ""
    )


def _counted(note: Observation) -> str:
    if not {"parameters", "elements"} <= set(note.figures):
        return ""
    parameters, elements = note.figures["parameters"], note.figures["elements"]
    return f"parameters with {elements:,.0f} elements in {parameters:,.0f} tensors"


CLAUSES: dict[str, Callable[[Observation], str]] = {
    "constant_term": _idle,
    "sum_reduction": _summed,
    "foreign_optimizer_parameters": _foreign,
    "unregistered_module": _counted,
    "temperature": _temperature,
    "frozen_parameters": _frozen,
    "frozen_midway": _frozen,
    "fresh_moments": _fresh,
}
"""Kinds whose figures make a clause."""
