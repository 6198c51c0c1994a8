# SPDX-License-Identifier: MIT
"""Vanishing gradient: a layer's gradient norm stays below the threshold, or never exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from neuraldbg.detectors.gradients import LayerGradients
from neuraldbg.detectors.transitions import Kind, Transitions
from neuraldbg.schema.vocabulary import EventType, GradientHealth, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.thinned import ThinnedSteps
    from neuraldbg.settings import Settings

RELATIVE_WARNING = 1e-3
"""A vanished layer is a warning where the strongest layer's gradient is this much larger: first to
last ratio of AutoTrainer (ICSE 2021). Where all layers are small together the run may be done."""


class VanishingGradient:
    """Reports layers whose gradient norm fell below `threshold_vanishing`, or is absent.

    The state is absolute and says nothing about blame: a converged run's gradients vanish too.
    """

    name: ClassVar[str] = "vanishing_gradient"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.GRADIENT_HEALTH_TRANSITION})

    def __init__(self, run: RunInfo, settings: Settings) -> None:
        """Start a run."""
        self._threshold = settings.threshold_vanishing
        self._gradients = LayerGradients(run)
        names = self._gradients.names
        kind = EventType.GRADIENT_HEALTH_TRANSITION, GradientHealth.HEALTHY.value
        self._small = Transitions(Kind(self.name, *kind, GradientHealth.VANISHING.value), names)
        self._absent = Transitions(Kind(self.name, *kind, GradientHealth.ABSENT.value), names)

    def on_step(self, facts: StepFacts) -> Sequence[SemanticEvent]:
        """Classify every layer's gradient of this step."""
        return self._judge(facts.step, *self._gradients.measure(facts))

    def _judge(
        self, step: int, norm: NDArray[np.float64], missing: NDArray[np.float64]
    ) -> Sequence[SemanticEvent]:
        """Classify gradients `[N]` of a step (see `LayerGradients.measure`)."""
        if not len(norm):
            return ()
        known = ~np.isnan(norm)
        absent = missing >= self._gradients.owned
        small = (norm < self._threshold) & ~absent
        if not (small.any() or absent.any() or self._small.run.any() or self._absent.run.any()):
            return ()
        finite = norm[np.isfinite(norm)]
        strongest = float(finite.max()) if len(finite) else float("nan")

        def describe(row: int) -> tuple[dict[str, float | str], Severity, float]:
            relative = norm[row] < RELATIVE_WARNING * strongest
            evidence: dict[str, float | str] = {
                "grad_norm": float(norm[row]),
                "strongest_layer_grad_norm": strongest,
                "threshold": self._threshold,
            }
            healthy = strongest > self._threshold and relative
            return evidence, Severity.WARNING if healthy else Severity.INFO, 0.8 if healthy else 0.4

        return [
            *self._small.update(step, small, known, describe),
            *self._absent.update(step, absent, known, describe),
        ]

    def absorb(self, steps: ThinnedSteps) -> bool:
        """Take steps on which no state begins; False, and as before, where one does."""
        norm, missing, labels = self._gradients.measure_all(steps)
        is_small = (norm < self._threshold).any() or (missing >= self._gradients.owned).any()
        if not (is_small or self._small.run.any() or self._absent.run.any()):
            return True
        before = self._small.copy(), self._absent.copy()
        for label, one, gone in zip(labels.tolist(), norm, missing, strict=True):
            if self._judge(label, one, gone):
                self._small, self._absent = before
                return False
        return True

    def on_finish(self) -> Sequence[SemanticEvent]:
        """Bring counts up to date."""
        return [*self._small.close(), *self._absent.close()]
