# SPDX-License-Identifier: MIT
"""Activation shift: a layer's output scale leaves the band of its own past."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from neuraldbg.baseline import Window
from neuraldbg.detectors.transitions import Follower, leaves_normal
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import ActivationHealth, EventType, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.settings import Settings

WARM_UP = 12
"""Steps before a layer has a past to compare with."""
JUMP_Z = 10.0
"""Robust z of the log RMS. Heuristic: RMS averages over thousands of numbers and is calm."""
JUMP_RATIO = 3.0
"""And at least this factor away from the median."""
LOG_FLOOR = 0.05
"""Smallest scale of log RMS taken for real: 5 % from batch to batch is calm."""


class ActivationShift(Follower):
    """Reports layers whose output RMS jumps away from its own median, or is not finite."""

    name: ClassVar[str] = "activation_shift"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.ACTIVATION_REGIME_SHIFT})

    def __init__(self, run: RunInfo, settings: Settings) -> None:  # noqa: ARG002 - the contract
        """Start a run."""
        kind = leaves_normal(self.name, ActivationHealth.ANOMALOUS, persistence=1)
        super().__init__(kind, tuple(layer.path for layer in run.layers))
        self._past = Window(len(run.layers))

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Compare every layer's output RMS with its own past."""
        count = len(self.transitions.names)
        if not facts.is_sampled or len(facts.activation) < count or not count:
            return ()
        rms = facts.activation[:count, ActivationStat.RMS].astype(np.float64)
        broken = facts.activation[:count, ActivationStat.NONFINITE] == 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(rms)
        logs = np.where(np.isfinite(logs), logs, np.nan)
        z = self._past.score(logs, LOG_FLOOR)
        middle = self._past.middle
        far = (np.abs(z) > JUMP_Z) & (np.abs(logs - middle) > np.log(JUMP_RATIO))
        bad = (far & (self._past.count > WARM_UP)) | broken
        self._past.push(logs)

        def describe(row: int) -> tuple[dict[str, float | str], Severity, float]:
            evidence: dict[str, float | str] = {
                "rms": float(rms[row]),
                "median_rms": float(np.exp(middle[row])),
                "robust_z": float(z[row]),
                "nonfinite": float(broken[row]),
            }
            critical = bool(broken[row])
            return evidence, Severity.CRITICAL if critical else Severity.INFO, 0.6 + 0.35 * critical

        return self.transitions.update(facts.step, bad, ~np.isnan(logs) | broken, describe)
