# SPDX-License-Identifier: MIT
"""The detector: weights that have grown to many times their first size."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import ParameterStat
from neuraldbg.schema.vocabulary import EventType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.settings import Settings

GROWTH = 8.0
"""Heuristic: three doublings. A layer under weight decay settles within one or two."""
FLOOR = 1e-3
"""Heuristic: weights that start at zero (biases, gates) have no size to compare with."""


class WeightDrift:
    """Reports a parameter, once, when its RMS is `GROWTH` times what it was first seen to be.

    Says nothing about whether the drift does harm: a scale-invariant layer may drift for ever.
    """

    name: ClassVar[str] = "weight_drift"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.OPTIMIZER_INSTABILITY})

    def __init__(self, run: RunInfo, settings: Settings) -> None:  # noqa: ARG002 - the host passes both
        """Start a run; `settings` name no threshold of ours."""
        self._first = np.full(len(run.parameters), np.nan)
        self._told = np.zeros(len(run.parameters), dtype=bool)
        self._last_step = 0

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Compare the RMS of every parameter, `[P]`, with the first one that was measured."""
        rms = facts.parameter[:, ParameterStat.WEIGHT_RMS].astype(np.float64)
        last, self._last_step = self._last_step, facts.step
        if len(rms) != len(self._first):
            return []
        unknown = np.isnan(self._first) & (rms > FLOOR)
        self._first[unknown] = rms[unknown]
        drifted = (rms > GROWTH * self._first) & np.isfinite(rms) & ~self._told
        self._told |= drifted
        return [self._event(facts, row, rms[row], last) for row in np.flatnonzero(drifted)]

    def on_finish(self) -> Iterable[SemanticEvent]:
        """Nothing shows only at the end."""
        return []

    def _event(self, facts: StepFacts, row: int, rms: float, last: int) -> SemanticEvent:
        parameter = facts.run.parameters[row]
        return SemanticEvent(
            event_type=EventType.OPTIMIZER_INSTABILITY,
            layer=parameter.layer,
            step=facts.step,
            step_range=(min(last, facts.step), facts.step),
            from_state="stable",
            to_state="weight_drift",
            confidence=0.6,
            evidence={
                "parameter": parameter.name,
                "first_rms": float(self._first[row]),
                "rms": float(rms),
                "growth_ratio": float(rms / self._first[row]),
            },
        )
