# SPDX-License-Identifier: MIT
"""`ThinnedSteps`: steps of which only loss, gradients and ledger were heard, in bulk."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuraldbg.schema.facts import (
    ActivationStat,
    InputStat,
    LedgerFacts,
    ParameterStat,
    StepFacts,
)
from neuraldbg.schema.run import RunInfo

_LEDGER = {f.name: type(getattr(LedgerFacts(), f.name)) for f in dataclasses.fields(LedgerFacts)}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ThinnedSteps:
    """Consecutive steps, up to some thousand, on which no tap ran, `T` of them, none of them odd.

    The overhead budget makes them. Nothing was measured but what stands here.
    """

    run: RunInfo
    """As known when they ended; one object for all."""
    steps: NDArray[np.int64]
    """Labels, `[T]`."""
    losses: tuple[Mapping[str, float], ...]
    """Per step, by name; as `StepFacts.losses`."""
    metrics: tuple[Mapping[str, float], ...]
    grad_norm: NDArray[np.float32]
    """`[T, P]`, L2 before clipping; NaN where the norms were thinned out too."""
    grad_state: NDArray[np.float32]
    """`[T, P]`, `GradState`; NaN where the norms were thinned out too."""
    optimizer: NDArray[np.float32]
    """`[T, O, len(OptimizerStat)]`."""
    ledger: NDArray[np.float64]
    """`[T, F]`, the fields of `LedgerFacts` in order; flags are 0 and 1."""
    seconds: NDArray[np.float64]
    """Wall time since the step before ended, `[T]`."""

    def __len__(self) -> int:
        return len(self.steps)

    def facts(self, index: int) -> StepFacts:
        """Return one of them alone, as `Detector.on_step` gets it."""
        return StepFacts(
            run=self.run,
            step=int(self.steps[index]),
            losses=self.losses[index],
            metrics=self.metrics[index],
            activation=_unknown(len(self.run.layers), len(ActivationStat)),
            parameter=self.parameter(index),
            inputs=_unknown(len(self.run.inputs), len(InputStat)),
            optimizer=self.optimizer[index],
            ledger=self._ledger(index),
            is_sampled=False,
            seconds=float(self.seconds[index]),
        )

    def part(self, which: slice) -> ThinnedSteps:
        """Return some of them, in order."""
        names = (field.name for field in dataclasses.fields(self) if field.name != "run")
        return dataclasses.replace(self, **{name: getattr(self, name)[which] for name in names})

    def parameter(self, index: int | slice) -> NDArray[np.float32]:
        """Return `[..., P, len(ParameterStat)]` of one step or of several."""
        norm = self.grad_norm[index]
        values = np.full((*norm.shape, len(ParameterStat)), np.nan, dtype=np.float32)
        values[..., ParameterStat.GRAD_NORM] = norm
        values[..., ParameterStat.GRAD_STATE] = self.grad_state[index]
        return values

    def _ledger(self, index: int) -> LedgerFacts:
        values: dict[str, Any] = {
            name: kind(value)
            for (name, kind), value in zip(
                _LEDGER.items(), self.ledger[index].tolist(), strict=True
            )
        }
        return LedgerFacts(**values)


def _unknown(rows: int, columns: int) -> NDArray[np.float32]:
    return np.full((rows, columns), np.nan, dtype=np.float32)
