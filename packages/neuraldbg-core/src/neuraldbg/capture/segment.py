# SPDX-License-Identifier: MIT
"""What happened between two optimizer steps, and how such segments merge into one step.

A loop with one optimizer makes one segment per step. A loop with several (GAN, actor and critic)
makes one per optimizer; they form one step when the user records one loss for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    LedgerFacts,
    Observation,
    OptimizerStat,
    ParameterStat,
    StepFacts,
)
from neuraldbg.schema.run import RunInfo

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class Segment:
    """Mutable notes of one segment; the arrays are filled when it closes."""

    forwards: int = 0
    eval_forwards: int = 0
    backwards: int = 0
    steps: int = 0
    evaluations: int = 0
    """Times an optimizer was about to use its gradients: more than `steps` with a closure."""
    skipped: int = 0
    clips: int = 0
    clip_max_norm: float = math.nan
    clip_total_norm: float = math.nan
    is_cleared: bool = True
    is_cleared_before_step: bool = False
    is_clipped_after_step: bool = False
    is_clipped_scaled: bool = False
    eval_mode_forwards: int = 0
    train_mode_eval_forwards: int = 0
    loss_scale: float = math.nan
    batch_size: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    backward_losses: list[float] = field(default_factory=list)
    stepped: set[int] = field(default_factory=set)
    """`id()` of the optimizers that stepped."""
    observations: list[Observation] = field(default_factory=list)
    is_sampled: bool = True
    is_thinned: bool = False
    """Whether no tap was on the modules, so that not even calls of layers were counted."""
    norms: list[float] | None = None
    """Of a thinned step: L2 norm of each gradient of its optimizer, `gradients.ABSENT` for none."""
    activation: np.ndarray | None = None
    parameter: np.ndarray | None = None
    inputs: np.ndarray | None = None
    optimizer: np.ndarray | None = None
    settings: dict[int, np.ndarray] = field(default_factory=dict)
    """Rows of `optimizer` that were still on their way from the device when it was made."""

    def note_clearing(self, is_dirty: bool, is_gone: bool, *, is_skipped: bool = False) -> None:  # noqa: FBT001 - as told
        """Note what the sentinels saw at an optimizer's step; gone is no fault where it skips."""
        self.is_cleared &= not is_dirty
        self.is_cleared_before_step |= is_gone and not is_skipped

    def note_clip(self, factor: Any) -> None:
        """Note by what gradients were multiplied when they were clipped."""
        self.is_clipped_scaled |= float(factor) != 1.0

    def note_found_inf(self, flag: Any) -> None:
        """Note whether a fused optimizer skipped the step that it was counted for."""
        if float(flag):
            self.steps, self.skipped = self.steps - 1, self.skipped + 1

    def settle(self) -> None:
        """Replace figures that came late by their numbers; all must be here."""
        self.losses = {name: list(map(float, values)) for name, values in self.losses.items()}
        self.metrics = {name: float(value) for name, value in self.metrics.items()}
        self.backward_losses = list(map(float, self.backward_losses))
        self.clip_total_norm = float(self.clip_total_norm)
        self.loss_scale = float(self.loss_scale)
        for row, values in self.settings.items():
            if self.optimizer is not None:
                self.optimizer[row] = values

    @property
    def is_done(self) -> bool:
        """Whether an optimizer stepped, or a scaler skipped its step."""
        return bool(self.steps or self.skipped)

    @property
    def is_empty(self) -> bool:
        """Whether nothing worth a record happened."""
        active = self.forwards or self.backwards or self.steps or self.skipped
        return not (active or self.losses or self.observations or self.metrics)

    def ledger(self) -> LedgerFacts:
        """Freeze the counts and flags."""
        return LedgerFacts(**{f.name: getattr(self, f.name) for f in fields(LedgerFacts)})

    def freeze(
        self, run: RunInfo, label: int, seconds: float, *, is_interrupted: bool
    ) -> StepFacts:
        """Return the closed step as facts; the segment must have its arrays."""
        return StepFacts(
            run=run,
            step=label,
            losses=self.loss_values(),
            metrics=self.metrics,
            activation=_rows(self.activation, len(ActivationStat)),
            parameter=_rows(self.parameter, len(ParameterStat)),
            inputs=_rows(self.inputs, len(InputStat)),
            optimizer=_rows(self.optimizer, len(OptimizerStat)),
            ledger=self.ledger(),
            observations=tuple(self.observations),
            is_sampled=self.is_sampled,
            seconds=seconds,
            is_interrupted=is_interrupted,
        )

    def loss_values(self) -> dict[str, float]:
        """Mean of each recorded loss; that given to `backward` where none was recorded."""
        if self.losses:
            return {name: _mean(values) for name, values in self.losses.items()}
        return {"backward": _mean(self.backward_losses)} if self.backward_losses else {}


@dataclass(slots=True)
class Closed:
    """A step that is over, and what was known of it then; its figures may come some steps later."""

    group: list[Segment]
    run: RunInfo
    label: int
    ordinal: int
    seconds: float
    audited: list[Observation]
    """What the audit found."""
    wrapped: int | None
    """Calls of a wrapper of DDP; see `ranks.Wrapping`."""
    has_optimizer: bool
    """Whether an optimizer of watched parameters is known."""
    is_interrupted: bool


_SUMS = (
    "forwards", "eval_forwards", "backwards", "steps", "evaluations", "skipped", "clips",
    "eval_mode_forwards", "train_mode_eval_forwards",
)  # fmt: skip
_FLAGS = ("is_cleared_before_step", "is_clipped_after_step", "is_clipped_scaled")


def merge(segments: Iterable[Segment]) -> Segment:
    """Join the segments of one step; later figures win where both measured."""
    first, *rest = segments
    for other in rest:
        for name in _SUMS:
            setattr(first, name, getattr(first, name) + getattr(other, name))
        for name in _FLAGS:
            setattr(first, name, getattr(first, name) or getattr(other, name))
        first.is_cleared = first.is_cleared and other.is_cleared
        first.batch_size = max(first.batch_size, other.batch_size)
        for name in ("clip_max_norm", "clip_total_norm", "loss_scale"):
            if not math.isnan(getattr(other, name)):
                setattr(first, name, getattr(other, name))
        for name, values in other.losses.items():
            first.losses.setdefault(name, []).extend(values)
        first.metrics.update(other.metrics)
        first.backward_losses += other.backward_losses
        first.stepped |= other.stepped
        first.observations += other.observations
        first.is_sampled = first.is_sampled and other.is_sampled
        first.activation = _join_activation(first.activation, other.activation)
        first.parameter = _join_parameter(first.parameter, other.parameter)
        first.inputs = _join_inputs(first.inputs, other.inputs)
        first.optimizer = _join(first.optimizer, other.optimizer)
    return first


def _rows(array: np.ndarray | None, columns: int) -> np.ndarray:
    """Return the array, or one without rows."""
    return np.full((0, columns), np.nan, dtype=np.float32) if array is None else array


def _join(old: np.ndarray | None, new: np.ndarray | None) -> np.ndarray | None:
    if old is None or new is None:
        return old if new is None else new
    rows = max(len(old), len(new))
    merged = np.full((rows, new.shape[1]), np.nan, dtype=np.float32)
    merged[: len(old)] = old
    ours = merged[: len(new)]
    ours[~np.isnan(new)] = new[~np.isnan(new)]
    return merged


def _join_inputs(old: np.ndarray | None, new: np.ndarray | None) -> np.ndarray | None:
    """Join figures of inputs: extremes, flags and the spread over all segments, later else."""
    merged = _join(old, new)
    if merged is None or old is None or new is None:
        return merged
    both = min(len(old), len(new))
    for column in (InputStat.MAX, InputStat.NAN, InputStat.INF, InputStat.SAMPLE_SPREAD):
        merged[:both, column] = np.fmax(old[:both, column], new[:both, column])
    merged[:both, InputStat.MIN] = np.fmin(old[:both, InputStat.MIN], new[:both, InputStat.MIN])
    return merged


def _join_activation(old: np.ndarray | None, new: np.ndarray | None) -> np.ndarray | None:
    if old is None or new is None:
        return old if new is None else new
    merged = np.where(np.isnan(new) & (new[:, :1] == 0), old, new)
    merged[:, ActivationStat.CALLS] = old[:, ActivationStat.CALLS] + new[:, ActivationStat.CALLS]
    return merged.astype(np.float32)


def _join_parameter(old: np.ndarray | None, new: np.ndarray | None) -> np.ndarray | None:
    if old is None or new is None:
        return old if new is None else new
    idle = new[:, ParameterStat.GRAD_STATE] == GradState.NOT_STEPPED
    return np.where(idle[:, None], old, new).astype(np.float32)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else sum(values)
