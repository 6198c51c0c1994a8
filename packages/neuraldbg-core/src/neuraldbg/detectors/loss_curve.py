# SPDX-License-Identifier: MIT
"""The loss curve: spikes, divergence, oscillation and plateaus, on noisy losses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from neuraldbg.baseline import MAD_TO_SIGMA, difference_noise, theil_sen
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import main_loss
from neuraldbg.schema.vocabulary import EventType, OptimizerHealth, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.thinned import ThinnedSteps
    from neuraldbg.settings import Settings

WINDOW = 48
"""Steps that make the band a new loss is compared with."""
RENEW_EVERY = 4
"""Steps between two looks at what the band is."""
MANY = 24
"""Steps from which on judging them at once is cheaper than one by one."""
WARM_UP = 6
SPIKE_Z = 9.0
"""Robust z of a single loss (OLMo-2's spike score uses 7 sd of 1,000 steps; ours has 48)."""
SPIKE_RATIO = 1.5
"""And at least this many times the median: a calm curve makes any z large."""
SCALE_FLOOR = 0.03
"""Smallest scale taken for real, as a share of the median loss."""
DRIFT_ALARM = 24.0
"""CUSUM of standardised losses, slack 1 sigma: 8 steps at 4 sigma, or 24 at 2."""
REVIEW_EVERY = 64
"""Steps between looks for plateaus and oscillation, at first ..."""
RENEWED = 16
"""... and so many new losses at least, of the up to 128 that are looked at, later on."""
MOST_SPIKES = 4
"""Spikes told apart; later ones raise the count of the last."""


class LossCurve:
    """Reports changes of the main loss against the band of its own recent past."""

    name: ClassVar[str] = "loss_curve"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.OPTIMIZER_INSTABILITY})

    def __init__(self, run: RunInfo, settings: Settings) -> None:  # noqa: ARG002 - the contract
        """Start a run."""
        self._recent: list[float] = []
        self._middle = self._scale = math.nan
        self._cusum, self._drift_from, self._good = 0.0, -1, -1
        self._review: list[tuple[int, float]] = []
        self._lately: Lately | None = None
        """What `_review` shows, where it has been asked since it last grew."""
        self._stride = 1
        self._seen = 0
        self._spikes: list[SemanticEvent] = []
        self._told: dict[str, SemanticEvent] = {}
        self._in_spike = False

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Judge this step's loss."""
        return self._judge(facts.step, facts.loss) if facts.losses else ()

    def _judge(self, step: int, loss: float) -> list[SemanticEvent]:
        if not math.isfinite(loss):
            evidence: dict[str, float | str] = {"loss": loss}
            return self._state(OptimizerHealth.DIVERGING, step, step, evidence, Severity.CRITICAL)
        self._seen += 1
        events = [*self._single(step, loss)] if self._seen > WARM_UP else []
        self._push(step, loss)
        if self._is_review_due:
            events += self._look_back()
        return events

    @property
    def _is_review_due(self) -> bool:
        # The stride is a power of two: the larger of the two distances is a multiple of the other.
        return self._seen % REVIEW_EVERY == 0 and self._seen % (RENEWED * self._stride) == 0

    def absorb(self, steps: ThinnedSteps) -> bool:
        """Take steps whose losses make no event; False, and as before, where one does."""
        curve = [
            (label, main_loss(losses))
            for label, losses in zip(steps.steps.tolist(), steps.losses, strict=True)
            if losses
        ]
        before = self._state_now()
        if self._seen >= WINDOW and len(curve) >= MANY:
            if self._is_calm(curve) and not self._reviewed(curve):
                return True
            vars(self).update(before)
            before = self._state_now()
        if not any(self._judge(label, loss) for label, loss in curve):
            return True
        vars(self).update(before)
        return False

    def _state_now(self) -> dict[str, Any]:
        return {
            name: value.copy() if isinstance(value, list | dict) else value
            for name, value in vars(self).items()
        }

    def _is_calm(self, curve: list[tuple[int, float]]) -> bool:
        """Do at once what `_single` and the band do step by step; False where that may tell."""
        losses = np.array([loss for _, loss in curve])
        if not np.isfinite(losses).all():
            return False
        renewed = (self._seen + np.arange(1, len(losses) + 1)) % RENEW_EVERY == 0
        history = np.concatenate((self._recent, losses))
        bands = sliding_window_view(history, WINDOW)[1:][renewed]
        middles = np.partition(bands, WINDOW // 2, axis=1)[:, WINDOW // 2]
        gaps = np.abs(bands - middles[:, None])
        scales = MAD_TO_SIGMA * np.partition(gaps, WINDOW // 2, axis=1)[:, WINDOW // 2]
        middles = np.concatenate(([self._middle], middles))
        scales = np.concatenate(([self._scale], scales))
        latest = np.cumsum(renewed) - renewed
        middle, scale = middles[latest], scales[latest]
        level, above = np.abs(middle), losses - middle
        z = above / np.maximum(np.maximum(scale, SCALE_FLOOR * level), 1e-12)
        is_spike = (z > SPIKE_Z) & (above > (SPIKE_RATIO - 1) * level)
        if is_spike.any() or not np.isfinite(z).all() or not self._drifts_back(curve, z):
            return False
        self._recent = history[-WINDOW:].tolist()
        self._middle, self._scale = float(middles[-1]), float(scales[-1])
        self._in_spike = False
        return True

    def _drifts_back(self, curve: list[tuple[int, float]], z: np.ndarray) -> bool:
        """Follow the CUSUM along `z`, `[T]`; False where it alarms."""
        cusum, since = self._cusum, -1
        for index, one in enumerate(np.clip(z, -4.0, 4.0).tolist()):
            if cusum <= 0:
                since = index
            cusum = max(0.0, cusum + one - 1.0)
            if cusum > DRIFT_ALARM:
                return False
        self._cusum = cusum
        if since >= 0:
            step, _ = curve[since]
            self._drift_from, self._good = step, step - 1
        return True

    def _reviewed(self, curve: list[tuple[int, float]]) -> bool:
        """Keep what is due for review of several steps, and look back; whether that shows any."""
        for step, loss in curve:
            self._seen += 1
            if self._seen % self._stride == 0:
                self._keep(step, loss)
            if self._is_review_due and [*self._look_back()]:
                return True
        return False

    def on_finish(self) -> Iterable[SemanticEvent]:
        """Look back once more, and bring counts up to date."""
        return [*self._look_back(), *self._spikes[-1:]]

    def _push(self, step: int, loss: float) -> None:
        recent = self._recent
        recent.append(loss)
        if len(recent) > WINDOW:
            del recent[0]
        if self._seen <= 2 * WARM_UP or self._seen % RENEW_EVERY == 0:
            ordered = sorted(recent)
            self._middle = ordered[len(ordered) // 2]
            ordered = sorted(abs(x - self._middle) for x in recent)
            self._scale = MAD_TO_SIGMA * ordered[len(ordered) // 2]
        if self._seen % self._stride == 0:
            self._keep(step, loss)

    def _keep(self, step: int, loss: float) -> None:
        self._lately = None
        self._review.append((step, loss))
        if len(self._review) >= 4 * REVIEW_EVERY:
            self._review = self._review[1::2]
            self._stride *= 2

    def _single(self, step: int, loss: float) -> Iterable[SemanticEvent]:
        scale = max(self._scale, SCALE_FLOOR * abs(self._middle), 1e-12)
        z = (loss - self._middle) / scale
        evidence: dict[str, float | str] = {
            "loss": loss,
            "median_loss": self._middle,
            "robust_z": z,
        }
        if self._cusum <= 0:
            self._drift_from, self._good = step, step - 1
        self._cusum = max(0.0, self._cusum + min(max(z, -4.0), 4.0) - 1.0)
        is_spike = z > SPIKE_Z and loss - self._middle > (SPIKE_RATIO - 1) * abs(self._middle)
        if self._cusum > DRIFT_ALARM:
            self._cusum = 0.0
            yield from self._state(
                OptimizerHealth.DIVERGING, self._drift_from, step, evidence, Severity.WARNING
            )
        if is_spike and not self._in_spike:
            yield self._spike(step, evidence)
        self._in_spike = is_spike

    def _spike(self, step: int, evidence: dict[str, float | str]) -> SemanticEvent:
        if len(self._spikes) >= MOST_SPIKES:
            last = self._spikes[-1]
            event = last.model_copy(update={"count": last.count + 1, "last_step": step})
            self._spikes[-1] = event
            return event
        event = self._event(OptimizerHealth.LOSS_SPIKE, step, step, evidence, Severity.WARNING)
        self._spikes.append(event)
        return event

    def _state(
        self,
        state: OptimizerHealth,
        first: int,
        now: int,
        evidence: dict[str, float | str],
        severity: Severity,
    ) -> list[SemanticEvent]:
        """Tell a lasting state once; tell it again when its count doubles."""
        known = self._told.get(state)
        if known is None:
            event = self._told[state] = self._event(state, first, now, evidence, severity)
            return [event]
        event = self._told[state] = known.model_copy(
            update={"count": known.count + 1, "last_step": now}
        )
        return [event] if event.count & (event.count - 1) == 0 else []

    def _event(
        self,
        state: OptimizerHealth,
        first: int,
        now: int,
        evidence: dict[str, float | str],
        severity: Severity,
    ) -> SemanticEvent:
        return SemanticEvent(
            event_type=EventType.OPTIMIZER_INSTABILITY,
            step=first,
            step_range=(max(first - 1, 0), first),
            from_state=OptimizerHealth.STABLE.value,
            to_state=state.value,
            severity=severity,
            confidence=0.7,
            evidence=evidence,
            last_step=now,
            detector=self.name,
        )

    def _look_back(self) -> Iterable[SemanticEvent]:
        """Judge the last half of the run so far: no progress, or a swing from step to step."""
        half = self._review[len(self._review) // 2 :]
        if len(half) < REVIEW_EVERY // 2:
            return
        if self._lately is None:
            self._lately = Lately.of(half)
        seen = self._lately
        evidence: dict[str, float | str]
        if seen.gain < max(2 * seen.noise / math.sqrt(seen.size), 0.01 * seen.level):
            evidence = {"gain": seen.gain, "noise": seen.noise, "steps": float(seen.size)}
            yield from self._state(
                OptimizerHealth.LOSS_PLATEAU, seen.first, seen.last, evidence, Severity.INFO
            )
        if seen.swing > OSCILLATION and seen.noise > 0.2 * seen.level:
            evidence = {"oscillation": seen.swing, "noise": seen.noise, "level": seen.level}
            yield from self._state(
                OptimizerHealth.LOSS_SPIKE, seen.first, seen.last, evidence, Severity.WARNING
            )


OSCILLATION = 0.8
"""Share of direction changes from step to step. White noise changes direction at 2 steps in 3; an
overshooting optimizer at nearly every one."""


def oscillation(values: np.ndarray) -> float:
    """Return the share of steps at which a series changes direction, `[T]` -> 0..1.

    Example:
        >>> oscillation(np.array([0.0, 1.0, 0.0, 1.0, 0.0]))
        1.0
    """
    moves = np.sign(np.diff(values))
    moves = moves[moves != 0]
    if len(moves) < 2:
        return 0.0
    return float(np.mean(moves[1:] != moves[:-1]))


class Lately(NamedTuple):
    """What the losses of some time show."""

    first: int
    """Label of its first step ..."""
    last: int
    """... and of its last one."""
    size: int
    """How many losses."""
    gain: float
    """How far the loss fell along its robust line; negative where it rose."""
    noise: float
    """From step to step."""
    level: float
    """Absolute value of the median loss."""
    swing: float
    """See `oscillation`."""

    @classmethod
    def of(cls, curve: Sequence[tuple[int, float]]) -> Lately:
        """Measure (label, loss) of its steps."""
        steps = np.array([step for step, _ in curve], dtype=np.float64)
        losses = np.array([loss for _, loss in curve])
        slope, _ = theil_sen(steps, losses)
        return cls(
            first=int(steps[0]),
            last=int(steps[-1]),
            size=len(curve),
            gain=float(-slope * (steps[-1] - steps[0])),
            noise=difference_noise(losses),
            level=abs(float(np.median(losses))),
            swing=oscillation(losses),
        )
