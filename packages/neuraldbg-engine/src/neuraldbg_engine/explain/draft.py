# SPDX-License-Identifier: LicenseRef-Proprietary
"""`Draft`: one hypothesis in the making, with the findings that it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.hypotheses import CausalLink
from neuraldbg.schema.vocabulary import FailureType
from neuraldbg_engine.findings import Finding


@dataclass(frozen=True)
class Draft:
    """What is known of one probable cause, before it is put into words."""

    cause: str
    confidence: float
    failure: FailureType
    description: str
    layer: str | None = None
    onset: int | None = None
    onset_range: tuple[int, int] | None = None
    evidence: tuple[SemanticEvent, ...] = ()
    counter_evidence: tuple[SemanticEvent, ...] = ()
    chain: tuple[CausalLink, ...] = ()
    remedies: tuple[str, ...] = ()
    confirm: str = ""
    """The intervention that would prove it."""
    held: tuple[Finding, ...] = ()
    """Findings that speak for it, the clearest first."""
    denied: tuple[Finding, ...] = ()
    """Findings that speak against it, the clearest first."""
    missing: tuple[str, ...] = ()
    """What the trace could not say and that would tell it from the next cause, in words."""
