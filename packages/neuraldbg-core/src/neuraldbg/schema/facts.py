# SPDX-License-Identifier: MIT
"""`StepFacts`: everything measured on one optimizer step, as small numpy arrays.

Rows follow `RunInfo.layers`, `.parameters`, `.inputs` and `.optimizers`; columns follow the enums
below. A figure that was not measured on a step is NaN, never 0. A figure that was measured and is
not finite is NaN or Inf too: `nonfinite` flags tell the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from pydantic import Field

from neuraldbg.schema.run import Frozen, RunInfo


class ActivationStat(IntEnum):
    """Columns of `StepFacts.activation`, `[L, 14]`: a layer's output on the step's last forward."""

    CALLS = 0
    """Training forwards of this layer within the step."""
    MEAN = 1
    """Over the whole tensor."""
    RMS = 2
    """Root mean square over the whole tensor."""
    MIN = 3
    MAX = 4
    NONFINITE = 5
    """1.0 where the whole tensor held a NaN or Inf, else 0.0."""
    ZERO_SHARE = 6
    """Share of exact zeros, from the sample."""
    FLAT_SHARE = 7
    """Share where the activation's derivative is below 1 % of its peak (sample); NaN: unknown."""
    SILENT_SHARE = 8
    """Share of sampled units in the zero-derivative half for every sampled row of >= 4 steps."""
    SPREAD = 9
    """Standard deviation between the sampled rows (samples), mean over units, divided by RMS."""
    COSINE = 10
    """Mean pairwise cosine between sampled rows, -1 to 1."""
    RANK = 11
    """Participation ratio of the centred sample: effective number of directions, >= 1."""
    INPUT_RMS = 12
    """Root mean square of the layer's first floating-point input (sampled cheaply)."""
    ROW_MAX = 13
    """Mean over rows of the largest value: softmax confidence where the layer is a softmax."""


class ParameterStat(IntEnum):
    """Columns of `StepFacts.parameter`, `[P, 9]`, before clipping and after unscaling."""

    GRAD_NORM = 0
    """L2 norm of the gradient that the optimizer was about to use, before clipping."""
    GRAD_STATE = 1
    """`GradState` at the optimizer's pre-step hook."""
    WEIGHT_RMS = 2
    """Root mean square of the strided sample, before the step."""
    UPDATE_RMS = 3
    """Root mean square of (after - before) on the same sample; exact 0.0 means bit-identical."""
    SECOND_MOMENT_RATIO = 4
    """RMS of grad / max(sqrt(v), eps) on the sample (Adam-like), after the step; else NaN."""
    GRAD_COSINE = 5
    """Cosine between this and the previous sampled gradient on the sample, -1 to 1."""
    EPS_SHARE = 6
    """Share of sampled coordinates with sqrt(v) < eps (Adam-like); else NaN."""
    GRAD_ZERO_SHARE = 7
    """Share of exact zeros in the sampled gradient."""
    WEIGHT_MAX = 8
    """Largest absolute value of the weight sample, after the step (NaN/Inf if not finite)."""


class GradState(IntEnum):
    """Facts about a gradient when its optimizer steps."""

    PRESENT = 0
    NONE = 1
    ZERO = 2
    NONFINITE = 3
    NOT_STEPPED = 4
    """No optimizer that owns the parameter stepped."""
    UNSCALED_UNKNOWN = 5
    """Present, but under a loss scale that could not be divided out."""


class InputStat(IntEnum):
    """Columns of `StepFacts.inputs`, `[I, 9]`: a tensor that entered a watched model (train)."""

    MEAN = 0
    RMS = 1
    MIN = 2
    MAX = 3
    NAN = 4
    """1.0 where it held a NaN."""
    INF = 5
    """1.0 where it held an Inf and no NaN was seen, else 0.0."""
    FEATURE_SPREAD = 6
    """Largest / smallest non-zero standard deviation of features (last dim; dim 1 if 4-D)."""
    CONSTANT_SHARE = 7
    """Share of features with zero variance over the sampled rows."""
    SAMPLE_SPREAD = 8
    """Mean standard deviation between samples, divided by RMS; the step's most diverse forward."""


class OptimizerStat(IntEnum):
    """Columns of `StepFacts.optimizer`, `[O, 7]`: one row per optimizer, of its largest group."""

    STEPPED = 0
    """Times it stepped within the step."""
    LR = 1
    """Largest lr over its groups."""
    LR_MIN = 2
    MOMENTUM = 3
    """momentum, or beta1."""
    WEIGHT_DECAY = 4
    BETA2 = 5
    EPS = 6


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What the training loop did within one step, in counts and flags."""

    forwards: int = 0
    """Outermost training forwards (gradients on)."""
    eval_forwards: int = 0
    """Outermost forwards without gradients or in eval mode, since the previous step."""
    backwards: int = 0
    steps: int = 0
    """Optimizer steps over watched parameters (all optimizers)."""
    skipped: int = 0
    """Optimizer steps that a gradient scaler skipped."""
    clips: int = 0
    """Calls of clip_grad_norm_ seen."""
    clip_max_norm: float = float("nan")
    clip_total_norm: float = float("nan")
    """Total norm that the clipping call computed, before clipping."""
    is_cleared: bool = True
    """Whether gradients had been cleared when the step's first backward began."""
    is_cleared_before_step: bool = False
    """Whether gradients that a backward produced were gone or zeroed when the optimizer stepped."""
    is_clipped_after_step: bool = False
    is_clipped_scaled: bool = False
    """Whether the clipping call saw gradients still multiplied by the loss scale."""
    eval_mode_forwards: int = 0
    """Training forwards with gradients whose mode-dependent modules were in eval mode."""
    train_mode_eval_forwards: int = 0
    """Forwards without gradients whose mode-dependent modules were in train mode."""
    loss_scale: float = float("nan")
    batch_size: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """A one-off structural or numerical finding of capture; detectors turn it into an event.

    `kind` is a documented identifier (docs/reference/observations.md), `layer` a module path or
    None, `figures` numbers by name, `words` short texts by name (operation, argument, ...).
    """

    kind: str
    step: int
    layer: str | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One immutable record per optimizer step. Steps count from 0."""

    run: RunInfo
    """The run's description as known when the step ended (rows of the arrays below)."""
    step: int
    """Label: `dbg.step`, by default the ordinal."""
    losses: Mapping[str, float]
    """By name, as recorded by the user; the loss given to `backward` where none was recorded."""
    metrics: Mapping[str, float]
    activation: np.ndarray
    """`[L, len(ActivationStat)]` float32."""
    parameter: np.ndarray
    """`[P, len(ParameterStat)]` float32."""
    inputs: np.ndarray
    """`[I, len(InputStat)]` float32."""
    optimizer: np.ndarray
    """`[O, len(OptimizerStat)]` float32."""
    ledger: LedgerFacts
    observations: tuple[Observation, ...] = ()
    is_sampled: bool = True
    """Whether activation taps ran (the overhead budget may thin them out)."""
    seconds: float = float("nan")
    """Wall time since the previous step ended."""
    is_interrupted: bool = False
    """Whether the step never reached its optimizer (an exception, or the end of the run)."""

    @property
    def loss(self) -> float:
        """The main loss: `loss`, else the first recorded one, else NaN."""
        return main_loss(self.losses)


def main_loss(losses: Mapping[str, float]) -> float:
    """Return the main one of a step's losses: `loss`, else the first recorded one, else NaN."""
    if "loss" in losses:
        return losses["loss"]
    return next(iter(losses.values()), float("nan"))


class ObservationRecord(Frozen):
    """An `Observation` as stored and exported."""

    kind: str
    step: int
    layer: str | None = None
    figures: dict[str, float] = Field(default_factory=dict)
    words: dict[str, str] = Field(default_factory=dict)
