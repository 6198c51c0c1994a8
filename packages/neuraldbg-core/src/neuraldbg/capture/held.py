# SPDX-License-Identifier: MIT
"""Thinned steps that wait to be handed on, and the block that they make."""

from __future__ import annotations

from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.capture.segment import Segment
from neuraldbg.schema.facts import GradState, LedgerFacts
from neuraldbg.schema.thinned import ThinnedSteps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.capture.gradients import OwnedParameters, ParameterBoard
    from neuraldbg.schema.run import RunInfo

HELD_STEPS = 1024
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
        self._nothing = np.zeros((0, 0), dtype=np.float32)
        self._waiting: list[tuple[int, Segment | Mapping[str, float], float]] = []
        self._began_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self) -> None:
        """Start the clock of the first step that is to wait."""
        self._began_s = perf_counter()
        if self.row is not None:
            self._nothing = np.full_like(self.row, np.nan)

    def add(self, label: int, step: Segment | Mapping[str, float], seconds: float) -> None:
        """Let a closed step wait; of one that was bare its losses are enough."""
        self._waiting.append((label, step, seconds))

    def is_due(self, now: float) -> bool:
        """Whether the steps have waited long enough, at `perf_counter()` time `now`."""
        return len(self._waiting) >= HELD_STEPS or now - self._began_s > HELD_S

    def take(self, run: RunInfo, parameters: ParameterBoard) -> ThinnedSteps:
        """Return the steps as one block, and wait for the next."""
        held, self._waiting = self._waiting, []
        self.begin()
        heard = [step if isinstance(step, Segment) else None for _, step, _ in held]
        norm, state = self._gradients(heard, parameters)
        return ThinnedSteps(
            run=run,
            steps=np.array([label for label, _, _ in held], dtype=np.int64),
            losses=tuple([s.loss_values() if isinstance(s, Segment) else s for _, s, _ in held]),
            metrics=tuple([{} if one is None else one.metrics for one in heard]),
            grad_norm=norm,
            grad_state=state,
            optimizer=np.array([self._settings_of(one) for one in heard], dtype=np.float32),
            ledger=np.array([self._ledger_of(one) for one in heard], dtype=np.float64),
            seconds=np.array([seconds for _, _, seconds in held]),
        )

    def _gradients(
        self, heard: list[Segment | None], parameters: ParameterBoard
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return norms and states `[T, P]`; NaN where nothing was heard."""
        shape = len(heard), len(parameters.tensors)
        norm = np.full(shape, np.nan, dtype=np.float32)
        state = np.full(shape, np.nan, dtype=np.float32)
        norms = {i: one.norms for i, one in enumerate(heard) if one is not None and one.norms}
        measured = list(norms)
        if measured and self.owned is not None:
            state[measured] = GradState.NOT_STEPPED
            values = np.array(list(norms.values()), dtype=np.float32)
            rows = np.asarray(self.owned.rows)
            place = np.ix_(np.asarray(measured), rows)
            norm[place], state[place] = parameters.classify(rows, values)
        return norm, state

    def _settings_of(self, step: Segment | None) -> np.ndarray:
        """Return the optimizer's row of a step; nothing was read on a bare one."""
        if step is not None and step.optimizer is not None:
            return step.optimizer
        return self._nothing

    def _ledger_of(self, step: Segment | None) -> tuple[Any, ...]:
        return self.pattern if step is None or step.optimizer is None else tuple(counts(step))
