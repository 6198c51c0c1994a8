# SPDX-License-Identifier: MIT
"""Exploding gradient: far above the threshold, far above the layer's own past, or not finite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from neuraldbg.baseline import Window
from neuraldbg.detectors.gradients import LayerGradients
from neuraldbg.detectors.transitions import Kind, Transitions
from neuraldbg.schema.vocabulary import EventType, GradientHealth, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.thinned import ThinnedSteps
    from neuraldbg.settings import Settings

WARM_UP = 8
"""Steps before a layer has a past to compare with. Heuristic: a quarter of the usual 25 to 50."""
JUMP_Z = 8.0
"""Robust z of the log norm. Gradient norms are heavy-tailed in logs; ZClip's 2.5 (on an EMA) flags
one step in a hundred, 8 one in many thousands."""
JUMP_RATIO = 30.0
"""And at least this many times the median: a very calm past makes any z large."""
LOG_RATIO = math.log(JUMP_RATIO)
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
        known = ~np.isnan(norm)
        if not known.any():
            return ()
        broken = np.isinf(norm)
        usable = _logs(norm)
        z = self._past.score(usable, LOG_FLOOR)
        middle = self._past.middle
        jumped = (z > JUMP_Z) & (usable - middle > LOG_RATIO) & (self._past.count > WARM_UP)
        large = ((norm > self._threshold) | jumped) & ~broken
        self._past.push(np.where(jumped, np.nan, usable))
        skipped = facts.ledger.skipped > 0

        def describe(row: int) -> tuple[dict[str, float | str], Severity, float]:
            evidence: dict[str, float | str] = {"grad_norm": float(norm[row])}
            if np.isfinite(middle[row]):
                evidence["median_grad_norm"] = float(np.exp(middle[row]))
            if np.isfinite(z[row]):  # a broken one is at no distance from the past
                evidence["robust_z"] = float(z[row])
            evidence["threshold"] = self._threshold
            if broken[row]:
                return evidence, Severity.INFO if skipped else Severity.CRITICAL, 0.95
            return evidence, Severity.WARNING, 0.9 if jumped[row] else 0.6

        return [
            *self._large.update(facts.step, large, known, describe),
            *self._broken.update(facts.step, broken, known, describe),
        ]

    def absorb(self, steps: ThinnedSteps) -> bool:
        """Take steps on which no layer's gradient is large or jumps; False where one does."""
        norm, _, labels = self._gradients.measure_all(steps)
        if not len(labels):
            return True
        known = ~np.isnan(norm)
        rows = known.any(axis=1)
        norm, known, labels = norm[rows], known[rows], labels[rows]
        if (norm > self._threshold).any():
            return False
        usable, past = _logs(norm), self._past.copy()
        start = 0
        while start < len(usable):
            part = usable[start : start + past.steady]
            z = past.score(part, LOG_FLOOR)
            old = past.count + np.arange(len(part)) > WARM_UP
            far = (z > JUMP_Z) & (part - past.middle > LOG_RATIO) & old[:, None]
            if far.any():
                return False
            for row in part:
                past.push(row)
            start += len(part)
        self._past = past
        if len(labels):
            self._large.absorb(labels, known)
            self._broken.absorb(labels, known)
        return True

    def on_finish(self) -> Iterable[SemanticEvent]:
        """Bring counts up to date."""
        return [*self._large.close(), *self._broken.close()]


def _logs(norm: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of norms, NaN where it is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(norm)
    return np.where(np.isfinite(logs), logs, np.nan)
