# SPDX-License-Identifier: MIT
"""Collapse: a layer gives (nearly) the same output for every sample of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from neuraldbg.detectors.transitions import Follower, Kind
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerRole
from neuraldbg.schema.vocabulary import EventType, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.settings import Settings

SPREAD = 0.02
"""Standard deviation between samples, relative to RMS, below which outputs count as one."""
FALL = 5.0
"""And at least this factor below the layer's largest spread so far: a layer that always averages
over its batch (a positional table, a bias) never had one."""


class Collapse(Follower):
    """Reports layers whose outputs lost the diversity that they once had."""

    name: ClassVar[str] = "collapse"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.REPRESENTATION_COLLAPSE})

    def __init__(self, run: RunInfo, settings: Settings) -> None:  # noqa: ARG002 - the contract
        """Start a run."""
        kind = Kind(self.name, EventType.REPRESENTATION_COLLAPSE, "diverse", "collapsed", 4)
        super().__init__(kind, tuple(layer.path for layer in run.layers))
        self._watched = np.array(
            [layer.role not in {LayerRole.DROPOUT, LayerRole.POOLING} for layer in run.layers],
            dtype=bool,
        )
        self._most = np.zeros(len(run.layers))

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Compare every layer's spread between samples with its past."""
        count = len(self._most)
        if not facts.is_sampled or len(facts.activation) < count or not count:
            return ()
        spread = facts.activation[:count, ActivationStat.SPREAD]
        self._most = np.fmax(self._most, spread)
        tight = (spread < SPREAD) & (FALL * spread < self._most) & self._watched
        cosine = facts.activation[:count, ActivationStat.COSINE]
        most = self._most

        def describe(row: int) -> tuple[dict[str, float | str], Severity, float]:
            evidence: dict[str, float | str] = {
                "spread": float(spread[row]),
                "largest_spread": float(most[row]),
                "cosine": float(cosine[row]),
            }
            return evidence, Severity.INFO, 0.6

        return self.transitions.update(facts.step, tight, ~np.isnan(spread), describe)
