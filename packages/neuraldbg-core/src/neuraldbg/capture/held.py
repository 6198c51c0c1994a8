# SPDX-License-Identifier: MIT
"""Thinned steps that wait to be handed on, and the block that they make."""

from __future__ import annotations

from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.schema.facts import GradState, LedgerFacts
from neuraldbg.schema.thinned import ThinnedSteps

if TYPE_CHECKING:
    from neuraldbg.capture.gradients import OwnedParameters, ParameterBoard
    from neuraldbg.capture.segment import Segment
    from neuraldbg.schema.run import RunInfo

HELD_STEPS = 256
"""Steps that wait at most ..."""
HELD_S = 0.25
"""... and seconds: with the writer's own delay a killed process loses less than one."""

counts = attrgetter(*LedgerFacts.__dataclass_fields__)
"""The ledger's fields of a segment, as a tuple."""


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
        self._waiting: list[tuple[int, Segment, float]] = []
        self._began_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self) -> None:
        """Start the clock of the first step that is to wait."""
        self._began_s = perf_counter()

    def add(self, label: int, step: Segment, seconds: float) -> None:
        """Let a closed step wait."""
        self._waiting.append((label, step, seconds))

    def is_due(self, now: float) -> bool:
        """Whether the steps have waited long enough, at `perf_counter()` time `now`."""
        return len(self._waiting) >= HELD_STEPS or now - self._began_s > HELD_S

    def take(self, run: RunInfo, parameters: ParameterBoard) -> ThinnedSteps:
        """Return the steps as one block, and wait for the next."""
        held, self._waiting = self._waiting, []
        self.begin()
        segments = [segment for _, segment, _ in held]
        norm, state = self._gradients(segments, parameters)
        return ThinnedSteps(
            run=run,
            steps=np.array([label for label, _, _ in held], dtype=np.int64),
            losses=tuple([one.loss_values() for one in segments]),
            metrics=tuple([one.metrics for one in segments]),
            grad_norm=norm,
            grad_state=state,
            optimizer=np.array([self._settings_of(one) for one in segments], dtype=np.float32),
            ledger=np.array([self._ledger_of(one) for one in segments], dtype=np.float64),
            seconds=np.array([seconds for _, _, seconds in held]),
        )

    def _gradients(
        self, segments: list[Segment], parameters: ParameterBoard
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return norms and states `[T, P]`; NaN where nothing was heard."""
        shape = len(segments), len(parameters.tensors)
        norm = np.full(shape, np.nan, dtype=np.float32)
        state = np.full(shape, np.nan, dtype=np.float32)
        measured = [i for i, one in enumerate(segments) if one.norms is not None]
        if measured and self.owned is not None:
            state[measured] = GradState.NOT_STEPPED
            values = np.array([segments[i].norms for i in measured], dtype=np.float32)
            rows = np.asarray(self.owned.rows)
            place = np.ix_(np.asarray(measured), rows)
            norm[place], state[place] = parameters.classify(rows, values)
        return norm, state

    def _settings_of(self, step: Segment) -> np.ndarray:
        """Return the optimizer's row of a step; nothing was read on a bare one."""
        if step.optimizer is not None or self.row is None:
            return np.asarray(step.optimizer, dtype=np.float32)
        return np.full_like(self.row, np.nan)

    def _ledger_of(self, step: Segment) -> tuple[Any, ...]:
        return self.pattern if step.optimizer is None else tuple(counts(step))
