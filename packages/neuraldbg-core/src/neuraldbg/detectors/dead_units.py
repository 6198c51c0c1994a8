# SPDX-License-Identifier: MIT
"""Dead units: the units of a rectifying layer stay in the half where nothing flows back."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from neuraldbg.detectors.transitions import Follower, leaves_normal
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import ActivationHealth, EventType, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.settings import Settings

DEAD_SHARE = 0.5
"""Share of units silent over the window from which a layer is reported (SageMaker Debugger,
torchmortem: 0.5). Wide sparse layers reach it in health: the event is information."""
MOSTLY_DEAD = 0.9
"""From here on it is a warning."""


class DeadUnits(Follower):
    """Reports rectifying layers most of whose units were silent for all rows of several steps."""

    name: ClassVar[str] = "dead_units"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.ACTIVATION_REGIME_SHIFT})

    def __init__(self, run: RunInfo, settings: Settings) -> None:  # noqa: ARG002 - the contract
        """Start a run."""
        kind = leaves_normal(self.name, ActivationHealth.DEAD, persistence=2)
        super().__init__(kind, tuple(layer.path for layer in run.layers))

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Compare every layer's share of silent units with the threshold."""
        if not facts.is_sampled:
            return ()
        count = len(self.transitions.names)
        silent = facts.activation[:count, ActivationStat.SILENT_SHARE]
        zeros = facts.activation[:count, ActivationStat.ZERO_SHARE]
        if len(silent) < count:
            return ()

        def describe(row: int) -> tuple[dict[str, float | str], Severity, float]:
            share = float(silent[row])
            evidence: dict[str, float | str] = {
                "silent_share": share,
                "zero_share": float(zeros[row]),
            }
            mostly = share >= MOSTLY_DEAD
            return evidence, Severity.WARNING if mostly else Severity.INFO, 0.5 + 0.5 * share - 0.05

        return self.transitions.update(facts.step, silent > DEAD_SHARE, ~np.isnan(silent), describe)
