# SPDX-License-Identifier: MIT
"""The optimizers that step watched parameters: what each owns, and its settings on each step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.capture import gradients
from neuraldbg.capture.gradients import OwnedParameters
from neuraldbg.schema.facts import Observation, OptimizerStat
from neuraldbg.schema.run import OptimizerInfo

if TYPE_CHECKING:
    import torch

    from neuraldbg.capture.gradients import ParameterBoard
    from neuraldbg.capture.layers import Survey
    from neuraldbg.capture.wiring import Wiring


class Optimizers:
    """Registers optimizers as they first step; one row each in `StepFacts.optimizer`."""

    def __init__(self, survey: Survey, board: ParameterBoard, wiring: Wiring) -> None:
        self._survey, self._board, self._wiring = survey, board, wiring
        self.infos: list[OptimizerInfo] = []
        self._owned: dict[int, OwnedParameters] = {}
        self._rows: dict[int, int] = {}
        self._values: list[np.ndarray] = []

    def __bool__(self) -> bool:
        return bool(self._owned)

    def owned_by(self, optimizer: torch.optim.Optimizer) -> OwnedParameters | None:
        """Return the watched parameters of an optimizer, None where it has none."""
        size = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._owned.get(id(optimizer))
        if known is not None and known.size == size and known.optimizer() is optimizer:
            return known
        tensors = [p for group in optimizer.param_groups for p in group["params"]]
        row_of = self._board.row_of
        rows = [row_of[id(p)] for p in tensors if id(p) in row_of]
        if not rows:
            self._wiring.note_foreign(optimizer)
            return None
        foreign = len(tensors) - len(rows)
        ours = [self._board.tensors[row] for row in rows]
        owned = OwnedParameters.of(optimizer, rows, ours, foreign, size)
        self._owned[id(optimizer)] = owned
        return owned

    def is_new(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the optimizer has no row yet."""
        return id(optimizer) not in self._rows

    def register(
        self,
        optimizer: torch.optim.Optimizer,
        owned: OwnedParameters,
        label: int,
        ordinal: int,
        *,
        has_stepped: bool = False,
    ) -> list[Observation]:
        """Give an optimizer its row; return what is odd about its appearing now.

        `has_stepped` says whether it has made its first step already (see `Wiring`).
        """
        self._rows[id(optimizer)] = len(self.infos)
        self._values.append(np.full(len(OptimizerStat), np.nan, dtype=np.float32))
        self.infos.append(
            OptimizerInfo(
                kind=type(optimizer).__name__,
                groups=len(optimizer.param_groups),
                parameters=tuple(self._survey.parameters[row].name for row in owned.rows),
                foreign=owned.foreign,
                options=gradients.options_of(optimizer),
            )
        )
        return self._wiring.optimizer_appeared(
            optimizer, owned, label, ordinal, has_stepped=has_stepped
        )

    def note_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Write the settings with which it has just stepped."""
        row = self._rows[id(optimizer)]
        stepped = self._values[row][OptimizerStat.STEPPED]
        count = 1 if math.isnan(stepped) else int(stepped) + 1
        self._values[row] = gradients.optimizer_row(optimizer, count)

    def only(self) -> OwnedParameters | None:
        """Return what the only optimizer owns; None where there are several, or its lr is a tensor.

        A tensor can change without a trace.
        """
        if len(self.infos) != 1 or len(self._owned) != 1:
            return None
        owned = next(iter(self._owned.values()))
        optimizer = owned.optimizer()
        groups = [] if optimizer is None else optimizer.param_groups
        is_plain = all(isinstance(group.get("lr", 0.0), float | int) for group in groups)
        return owned if groups and is_plain else None

    def latest(self) -> np.ndarray:
        """Return `[O, len(OptimizerStat)]` as after one step with the settings noted last."""
        for value in self._values:
            value[OptimizerStat.STEPPED] = np.nan
        rows = np.stack(self._values)
        rows[:, OptimizerStat.STEPPED] = 1.0
        return rows

    def take(self) -> np.ndarray | None:
        """Return `[O, len(OptimizerStat)]` of the segment and start a new one."""
        if not self._values:
            return None
        taken = np.stack(self._values)
        for value in self._values:
            value[OptimizerStat.STEPPED] = np.nan
        return taken
