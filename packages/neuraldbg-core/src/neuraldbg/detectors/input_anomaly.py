# SPDX-License-Identifier: MIT
"""Input anomaly: NaN, Inf, one outlier batch, a lasting shift or a slow drift of what enters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from neuraldbg.baseline import MAD_TO_SIGMA
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import InputStat
from neuraldbg.schema.vocabulary import DataHealth, EventType, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.thinned import ThinnedSteps
    from neuraldbg.settings import Settings

WARM_UP = 10
"""Batches before there is a band."""
REFERENCE = 128
"""Batches that make the band: the first ones, never the drifting recent ones."""
OUTLIER_Z = 12.0
"""Robust z of mean or log RMS. Batch statistics average over thousands of numbers; real loaders
mix sources, so 12 and not 6."""
SHIFT_STEPS = 8
"""Consecutive batches outside the band, on the same side, that make a shift of an outlier."""
DRIFT_Z = 4.0
"""Mean z of the last `DRIFT_STEPS` batches that makes a drift of no single outlier."""
DRIFT_STEPS = 32
LOG_FLOOR = 0.02
MEAN_FLOOR = 0.02
"""Smallest scales taken for real: 2 % of the RMS."""


class _Band:
    """The band of one input: medians and MADs of its first batches."""

    def __init__(self) -> None:
        self.history: list[tuple[float, float]] = []
        self.middle = self.scale = (math.nan, math.nan)

    def score(self, mean: float, rms: float) -> tuple[float, float]:
        """Return the signed z of the mean and of the log RMS; NaN while learning."""
        if len(self.history) < WARM_UP:
            return math.nan, math.nan
        level = math.exp(self.middle[1])
        z_mean = (mean - self.middle[0]) / max(self.scale[0], MEAN_FLOOR * level)
        z_rms = (math.log(max(rms, 1e-30)) - self.middle[1]) / max(self.scale[1], LOG_FLOOR)
        return z_mean, z_rms

    def push(self, mean: float, rms: float) -> None:
        """Add a batch while the band is still open."""
        if len(self.history) >= REFERENCE:
            return
        self.history.append((mean, math.log(max(rms, 1e-30))))
        count = len(self.history)
        if count != WARM_UP and (count < WARM_UP or count % 8):
            return
        data = np.array(self.history)
        middle = np.median(data, axis=0)
        scale = MAD_TO_SIGMA * np.median(np.abs(data - middle), axis=0)
        self.middle = float(middle[0]), float(middle[1])
        self.scale = float(scale[0]), float(scale[1])


class InputAnomaly:
    """Reports what enters the model when it leaves the band of the first batches."""

    name: ClassVar[str] = "input_anomaly"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.DATA_ANOMALY})

    def __init__(self, run: RunInfo, settings: Settings) -> None:  # noqa: ARG002 - the contract
        """Start a run."""
        self._bands: dict[int, _Band] = {}
        self._outside: dict[int, list[tuple[int, tuple[float, float]]]] = {}
        self._recent: dict[int, list[float]] = {}
        self._events: dict[tuple[int, str], SemanticEvent] = {}

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Compare every input of this step with its band."""
        if not len(facts.inputs):
            return ()
        events: list[SemanticEvent] = []
        for row, values in enumerate(facts.inputs.tolist()):
            name = facts.run.inputs[row].name if row < len(facts.run.inputs) else str(row)
            if values[InputStat.NAN] == 1.0:
                events += self._tell(row, name, DataHealth.NAN_DETECTED, facts.step, {})
            elif values[InputStat.INF] == 1.0:
                events += self._tell(row, name, DataHealth.INF_DETECTED, facts.step, {})
            elif math.isfinite(values[InputStat.MEAN]) and math.isfinite(values[InputStat.RMS]):
                events += self._figures(
                    row, name, facts.step, values[InputStat.MEAN], values[InputStat.RMS]
                )
        return events

    def absorb(self, steps: ThinnedSteps) -> bool:  # noqa: ARG002 - the contract
        """Take steps of which nothing that matters here was measured."""
        return True

    def on_finish(self) -> Iterable[SemanticEvent]:
        """Bring counts up to date."""
        return [event for event in self._events.values() if event.count > 1]

    def _figures(
        self, row: int, name: str, step: int, mean: float, rms: float
    ) -> Iterable[SemanticEvent]:
        band = self._bands.setdefault(row, _Band())
        scores = band.score(mean, rms)
        z = max(scores, key=abs)
        if math.isnan(z):
            band.push(mean, rms)
            return
        evidence: dict[str, float | str] = {
            "mean": mean,
            "rms": rms,
            "usual_mean": band.middle[0],
            "usual_rms": math.exp(band.middle[1]),
            "robust_z": z,
        }
        outside = self._outside.setdefault(row, [])
        if abs(z) > OUTLIER_Z:
            outside.append((step, scores))
            if len(outside) == 1:
                yield from self._tell(row, name, DataHealth.OUTLIER, step, evidence)
            if len(outside) == SHIFT_STEPS and _is_one_sided([z for _, z in outside]):
                first = outside[0][0]
                yield from self._tell(row, name, DataHealth.DISTRIBUTION_SHIFT, first, evidence)
            return
        outside.clear()
        band.push(mean, rms)
        recent = self._recent.setdefault(row, [])
        recent.append(z)
        if len(recent) >= DRIFT_STEPS:
            if abs(sum(recent) / len(recent)) > DRIFT_Z:
                first = step - DRIFT_STEPS + 1
                evidence["drift"] = 1.0
                yield from self._tell(row, name, DataHealth.DISTRIBUTION_SHIFT, first, evidence)
            recent.clear()

    def _tell(
        self, row: int, name: str, state: DataHealth, step: int, evidence: dict[str, float | str]
    ) -> Iterable[SemanticEvent]:
        """Tell the first; later ones raise its count, told when it doubles."""
        known = self._events.get((row, state))
        if known is not None:
            event = known.model_copy(update={"count": known.count + 1, "last_step": step})
            self._events[row, state] = event
            return [event] if event.count & (event.count - 1) == 0 else []
        broken = state in {DataHealth.NAN_DETECTED, DataHealth.INF_DETECTED}
        event = SemanticEvent(
            event_type=EventType.DATA_ANOMALY,
            step=step,
            step_range=(max(step - 1, 0), step),
            from_state=DataHealth.NORMAL.value,
            to_state=state.value,
            severity=Severity.CRITICAL if broken else Severity.WARNING,
            confidence=0.95 if broken else 0.7,
            evidence={"input": name, **evidence},
            last_step=step,
            detector=f"{self.name}.{name}",
        )
        self._events[row, state] = event
        return [event]


def _is_one_sided(scores: list[tuple[float, float]]) -> bool:
    """Whether the mean or the RMS lies outside on the same side every time.

    Larger inputs of mean zero have means that are far out on either side: there the RMS tells.
    """
    return any(
        min(column) > OUTLIER_Z or max(column) < -OUTLIER_Z for column in zip(*scores, strict=True)
    )
