# SPDX-License-Identifier: MIT
"""Norm scale: what a normalisation layer multiplies by has gone to zero, and nothing passes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from neuraldbg.detectors.transitions import Follower, leaves_normal
from neuraldbg.schema.facts import ParameterStat
from neuraldbg.schema.vocabulary import ActivationHealth, EventType, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.settings import Settings

GONE = 1e-3
"""RMS of the scale over its largest so far. Heuristic: layers after it make up for a hundredth, as
weight decay often leaves it; below a thousandth what passes drowns in the biases. A scale that
starts at 0, as on residual branches, has no largest value to have fallen from."""


class NormScale(Follower):
    """Reports normalisation layers whose scale was there and went to (nearly) zero."""

    name: ClassVar[str] = "norm_scale"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.ACTIVATION_REGIME_SHIFT})

    def __init__(self, run: RunInfo, settings: Settings) -> None:  # noqa: ARG002 - the contract
        """Start a run."""
        rows = run.scale_rows()
        kind = leaves_normal(self.name, ActivationHealth.DEAD, persistence=2)
        super().__init__(kind, tuple(run.parameters[row].layer for row in rows))
        self._rows = np.array(rows, dtype=np.intp)
        self._names = [run.parameters[row].name for row in rows]
        self._most = np.zeros(len(self._rows))

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Compare every scale with the largest that it has been."""
        if not len(self._rows) or len(facts.parameter) <= self._rows[-1]:
            return ()
        scale = facts.parameter[self._rows, ParameterStat.WEIGHT_RMS]
        self._most = np.fmax(self._most, np.where(np.isfinite(scale), scale, np.nan))
        most = self._most

        def describe(row: int) -> tuple[dict[str, float | str], Severity, float]:
            evidence: dict[str, float | str] = {
                "parameter": self._names[row],
                "scale_rms": float(scale[row]),
                "largest_scale_rms": float(most[row]),
            }
            return evidence, Severity.WARNING, 0.8

        return self.transitions.update(facts.step, scale < GONE * most, ~np.isnan(scale), describe)
