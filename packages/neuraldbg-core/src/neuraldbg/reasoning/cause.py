# SPDX-License-Identifier: MIT
"""The contract of causes: a view of the run in, an assessment or None out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.hypotheses import CausalLink
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView


@dataclass(frozen=True)
class Assessment:
    """What one cause has to say for itself on one run."""

    cause: str
    """Id from the vocabulary."""
    failure: FailureType
    confidence: float
    """Probability of the cause given its own evidence alone, before others are heard."""
    description: str
    """One sentence with the user's layers, steps and numbers."""
    layer: str | None = None
    onset: int | None = None
    onset_range: tuple[int, int] | None = None
    evidence: tuple[SemanticEvent, ...] = ()
    counter_evidence: tuple[SemanticEvent, ...] = ()
    chain: tuple[CausalLink, ...] = ()
    explains: frozenset[str] = field(default_factory=frozenset)
    """Causes whose symptoms this one would produce by itself: they step back where it holds."""
    is_direct: bool = False
    """Whether the evidence is the fault itself (an operation, a call), not its consequences."""


class CauseAssessor(Protocol):
    """One cause: looks for its evidence and answers with an assessment, or None."""

    def __call__(self, view: CaseView) -> Assessment | None:
        """Assess the run. Must not raise for want of data: missing evidence is None."""
        ...


def link(
    layer: str | None, step: int | None, mechanism: str, event: str | None = None
) -> CausalLink:
    """Return one link of a causal chain."""
    return CausalLink(layer=layer, step=step, mechanism=mechanism, event=event)


def named(layer: str | None) -> str:
    """Return a layer as it stands in sentences."""
    return "the model" if layer is None else f"layer {layer or '(root)'!r}"


def figure(value: float) -> str:
    """Return a number as it stands in sentences: three digits."""
    return f"{value:.3g}"


ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def argument(name: str) -> str:
    """Return an input, recorded as `<model>:<position or keyword>`, as it stands in sentences.

    Example:
        >>> argument(":0"), argument("G:mask")
        ('the first argument of the model', "argument 'mask' of model 'G'")
    """
    model, _, key = name.rpartition(":")
    owner = f"model {model!r}" if model else "the model"
    head, _, rest = key.partition(".")
    if not head.isdigit():
        return f"argument {key!r} of {owner}"
    number = int(head)
    which = (
        f"the {ORDINALS[number]} argument" if number < len(ORDINALS) else f"argument {number + 1}"
    )
    return f"{rest!r} in {which} of {owner}" if rest else f"{which} of {owner}"
