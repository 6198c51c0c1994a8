# SPDX-License-Identifier: MIT
"""Explanations: ranked hypotheses with evidence for and against, chains and couplings."""

from __future__ import annotations

from pydantic import Field

from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.run import Frozen
from neuraldbg.schema.vocabulary import FailureType


class CausalLink(Frozen):
    """One link of a causal chain, from root to symptom."""

    layer: str | None
    step: int | None
    mechanism: str
    """What happened here and how it led to the next link, one clause."""
    event: str | None = None
    """Id of the event that shows it."""


class Verification(Frozen):
    """What a replay showed. Core never fills it; the engine does."""

    outcome: str
    intervention: str
    effect: float | None = None
    noise: float | None = None


class CausalHypothesis(Frozen):
    """One possible cause of what went wrong, with what speaks for and against it."""

    failure_type: FailureType
    cause: str
    """Id from the vocabulary (`neuraldbg.causes`), or `unknown`."""
    layer: str | None = None
    onset: int | None = None
    """First step on which the fault acts."""
    onset_range: tuple[int, int] | None = None
    confidence: float = Field(ge=0.0, le=1.0)
    """Probability that this cause is at work."""
    description: str
    """One sentence that a tired person understands."""
    evidence: tuple[SemanticEvent, ...] = ()
    counter_evidence: tuple[SemanticEvent, ...] = ()
    causal_chain: tuple[CausalLink, ...] = ()
    remedies: tuple[str, ...] = ()
    verification: Verification | None = None
    details: tuple[str, ...] = ()
    """Sentences that say more: why, since when, where, how sure, what else it could be, what would
    settle it. Core's heuristics leave it empty; the engine fills it."""

    def __str__(self) -> str:
        return self.description


class Coupling(Frozen):
    """Two failures of which one is followed by the other along the data flow."""

    trigger: SemanticEvent
    consequence: SemanticEvent
    step_difference: int
    confidence: float = Field(ge=0.0, le=1.0)
    mechanism: str
    is_causal_candidate: bool = True


class RootCause(Frozen):
    """A row of the first-occurrence table."""

    failure: str
    """`<family>_<state>`, e.g. `gradient_vanishing`, `data_nan_detected`."""
    layer: str | None
    step: int
    event: str
    """Id of the event; empty where the hypothesis alone places the failure."""
