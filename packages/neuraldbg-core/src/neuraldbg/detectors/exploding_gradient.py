# SPDX-License-Identifier: MIT
"""Exploding gradient: far above the threshold, far above the layer's own past, or not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from neuraldbg.baseline import Window
from neuraldbg.detectors.gradients import LayerGradients
from neuraldbg.detectors.transitions import Kind, Transitions
from neuraldbg.schema.vocabulary import EventType, GradientHealth, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.settings import Settings

WARM_UP = 8
"""Steps before a layer has a past to compare with. Heuristic: a quarter of the usual 25 to 50."""
JUMP_Z = 8.0
"""Robust z of the log norm. Gradient norms are heavy-tailed in logs; ZClip's 2.5 (on an EMA) flags
one step in a hundred, 8 one in many thousands."""
JUMP_RATIO = 30.0
"""And at least this many times the median: a very calm past makes any z large."""
LOG_FLOOR = 0.2
"""Smallest scale of log norms taken for real: 20 % from step to step is calm."""


class ExplodingGradient:
    """Reports layers whose gradient norm exceeds `threshold_exploding`, jumps, or is not finite."""

    name: ClassVar[str] = "exploding_gradient"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.GRADIENT_HEALTH_TRANSITION})

    def __init__(self, run: RunInfo, settings: Settings) -> None:
        """Start a run."""
        self._threshold = settings.threshold_exploding
        self._gradients = LayerGradients(run)
        names = self._gradients.names
        kind = EventType.GRADIENT_HEALTH_TRANSITION, GradientHealth.HEALTHY.value
        self._large = Transitions(Kind(self.name, *kind, GradientHealth.EXPLODING.value, 1), names)
        self._broken = Transitions(Kind(self.name, *kind, GradientHealth.NONFINITE.value, 1), names)
        self._past = Window(len(names))

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Compare every layer's gradient of this step with the threshold and its own past."""
        norm, _ = self._gradients.measure(facts)
        if not len(norm):
            return ()
        known = ~np.isnan(norm)
        broken = np.isinf(norm)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(norm)
        usable = np.where(np.isfinite(logs), logs, np.nan)
        z = self._past.score(usable, LOG_FLOOR)
        middle = self._past.middle
        jumped = (
            (z > JUMP_Z) & (usable - middle > np.log(JUMP_RATIO)) & (self._past.count > WARM_UP)
        )
        large = ((norm > self._threshold) | jumped) & ~broken
        self._past.push(np.where(jumped, np.nan, usable))
        skipped = facts.ledger.skipped > 0

        def describe(row: int) -> tuple[dict[str, float | str], Severity, float]:
            evidence: dict[str, float | str] = {
                "grad_norm": float(norm[row]),
                "median_grad_norm": float(np.exp(middle[row])),
                "robust_z": float(z[row]),
                "threshold": self._threshold,
            }
            if broken[row]:
                return evidence, Severity.INFO if skipped else Severity.CRITICAL, 0.95
            return evidence, Severity.WARNING, 0.9 if jumped[row] else 0.6

        return [
            *self._large.update(facts.step, large, known, describe),
            *self._broken.update(facts.step, broken, known, describe),
        ]

    def on_finish(self) -> Iterable[SemanticEvent]:
        """Bring counts up to date."""
        return [*self._large.close(), *self._broken.close()]
