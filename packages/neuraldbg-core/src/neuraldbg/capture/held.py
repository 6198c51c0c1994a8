# SPDX-License-Identifier: MIT
"""Thinned steps that wait to be handed on, and the block that they make."""

from __future__ import annotations

from operator import attrgetter
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.schema.facts import LedgerFacts, OptimizerStat
from neuraldbg.schema.plain import GRADIENT
from neuraldbg.schema.thinned import ThinnedSteps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.capture.gradients import OwnedParameters, ParameterBoard
    from neuraldbg.capture.segment import Segment
    from neuraldbg.schema.run import RunInfo

HELD_STEPS = 1024
"""Steps that wait at most ..."""
HELD_S = 0.4
"""... and seconds: with the writer's own delay a killed process loses less than one."""

counts = attrgetter(*LedgerFacts.__dataclass_fields__)
"""The ledger's fields of a segment, as a tuple."""
_NONE: Mapping[str, float] = MappingProxyType({})


class Held:
    """The steps that wait, and what is the same for all of them.

    Attributes:
        pattern: ledger of a heard step of this loop: bare ones are taken to be the same.
        owned: what the only optimizer owns.
        row: `[O, len(OptimizerStat)]`, its settings as after the last heard step.
    """

    def __init__(self) -> None:
        self.pattern: tuple[Any, ...] = ()
        self.owned: OwnedParameters | None = None
        self.row: np.ndarray | None = None
        self._labels: list[int] = []
        self._losses: list[Mapping[str, float]] = []
        self._rates: list[float] = []
        self._seconds: list[float] = []
        self._heard: dict[int, Segment] = {}
        """Those that were not bare, by their place ..."""
        self._weighed: dict[int, list[float]] = {}
        """... and the gradient norms of those that were weighed."""
        self._began_s = 0.0

    def __len__(self) -> int:
        return len(self._labels)

    def begin(self) -> None:
        """Start the clock of the first step that is to wait."""
        self._began_s = perf_counter()

    def add(self, label: int, step: Segment, seconds: float, lr: float) -> None:
        """Let a closed step wait."""
        self._heard[len(self._labels)] = step
        self.add_bare(label, step.loss_values(), seconds, lr, step.norms)

    def add_bare(
        self,
        label: int,
        losses: Mapping[str, float],
        seconds: float,
        lr: float,
        norms: list[float] | None = None,
    ) -> None:
        """Let a step wait of which nothing but its losses, its lr and maybe norms was heard."""
        if norms is not None:
            self._weighed[len(self._labels)] = norms
        self._labels.append(label)
        self._losses.append(losses)
        self._seconds.append(seconds)
        self._rates.append(lr)

    @property
    def room(self) -> int:
        """How many more steps may wait, at least 1."""
        return max(1, HELD_STEPS - len(self))

    @property
    def due_s(self) -> float:
        """`perf_counter()` time until which they may wait."""
        return self._began_s + HELD_S

    def is_due(self, now: float) -> bool:
        """Whether the steps have waited long enough, at `perf_counter()` time `now`."""
        return len(self) >= HELD_STEPS or now > self.due_s

    def take(self, run: RunInfo, parameters: ParameterBoard) -> ThinnedSteps:
        """Return the steps as one block, and wait for the next."""
        heard = {place: one for place, one in self._heard.items() if one.optimizer is not None}
        norm, state = self._gradients(parameters)
        metrics = [_NONE] * len(self)
        for place, one in self._heard.items():
            metrics[place] = one.metrics
        block = ThinnedSteps(
            run=run,
            steps=np.array(self._labels, dtype=np.int64),
            losses=tuple(self._losses),
            metrics=tuple(metrics),
            grad_norm=norm,
            grad_state=state,
            optimizer=self._settings(heard),
            ledger=self._ledger(heard),
            seconds=np.array(self._seconds),
        )
        self._labels, self._losses, self._seconds, self._heard = [], [], [], {}
        self._rates, self._weighed = [], {}
        self.begin()
        return block

    def _gradients(self, parameters: ParameterBoard) -> tuple[np.ndarray, np.ndarray]:
        """Return norms and states `[T, P]`; NaN where nothing was heard."""
        shape = len(self), len(parameters.tensors)
        norm = np.full(shape, np.nan, dtype=np.float32)
        state = np.full(shape, np.nan, dtype=np.float32)
        if self._weighed and self.owned is not None:
            measured = list(self._weighed)
            state[measured] = GRADIENT.NOT_STEPPED
            values = np.array(list(self._weighed.values()), dtype=np.float32)
            rows = np.asarray(self.owned.rows)
            place = np.ix_(np.asarray(measured), rows)
            norm[place], state[place] = parameters.classify(rows, values)
        return norm, state

    def _settings(self, heard: Mapping[int, Segment]) -> np.ndarray:
        """Return the optimizer's rows, `[T, O, columns]`; of a bare step nothing but the lr."""
        shape = (0, 0) if self.row is None else self.row.shape
        values = np.full((len(self), *shape), np.nan, dtype=np.float32)
        if shape[0] == 1:
            values[:, 0, OptimizerStat.LR] = self._rates
        for place, one in heard.items():
            values[place] = one.optimizer
        return values

    def _ledger(self, heard: Mapping[int, Segment]) -> np.ndarray:
        """Return the ledger's rows, `[T, F]`."""
        values = np.empty((len(self), len(self.pattern)))
        values[:] = self.pattern
        for place, one in heard.items():
            values[place] = counts(one)
        return values
