# SPDX-License-Identifier: MIT
"""`SemanticEvent`: a change of state, with layer, step and figures."""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import Field, computed_field

from neuraldbg.schema.run import Frozen
from neuraldbg.schema.vocabulary import EventType, Severity


class SemanticEvent(Frozen):
    """Something changed its state: a gradient, an activation, the loss, the data, the loop.

    True when the step's optimizer stepped (losses: when recorded). An event says *that*, not
    *why*: causes are hypotheses.
    """

    event_type: EventType
    layer: str | None = None
    """Path as in `named_modules()`; None where no layer is concerned; `""` is the root module."""
    step: int
    """First bad step, counted from 0."""
    step_range: tuple[int, int]
    """(last step known good, first step known bad)."""
    from_state: str
    to_state: str
    severity: Severity = Severity.WARNING
    confidence: float = Field(ge=0.0, le=1.0)
    evidence: dict[str, float | str] = Field(default_factory=dict)
    """Figures by name; the unit is in the name where it is not obvious."""
    count: int = Field(default=1, ge=1)
    """How often it was seen after collapsing repeats."""
    last_step: int | None = None
    """Last step on which it was seen; None: only on `step`."""
    detector: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def id(self) -> str:
        """Deterministic: the same change on the same run has the same id everywhere."""
        states = f"{self.from_state}|{self.to_state}"
        key = f"{self.event_type}|{self.layer}|{self.step}|{states}|{self.detector}"
        return hashlib.sha256(key.encode()).hexdigest()[:12]

    @property
    def layer_name(self) -> str | None:
        """`layer` under its 1.x name."""
        return self.layer

    @property
    def metadata(self) -> dict[str, Any]:
        """`evidence` under its 1.x name."""
        return dict(self.evidence)

    def __str__(self) -> str:
        """One line: what, where, when."""
        where = f" in {self.layer or '(model)'!r}" if self.layer is not None else ""
        return f"{self.event_type}{where} at step {self.step}: {self.from_state} -> {self.to_state}"
