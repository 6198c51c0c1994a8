# SPDX-License-Identifier: MIT
"""The optimizers that step watched parameters: what each owns, and its settings on each step."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neuraldbg.capture import gradients
from neuraldbg.capture.gradients import OwnedParameters
from neuraldbg.capture.layers import is_shapeless
from neuraldbg.schema.facts import Observation, OptimizerStat
from neuraldbg.schema.run import OptimizerInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neuraldbg.capture.gradients import ParameterBoard
    from neuraldbg.capture.layers import Survey
    from neuraldbg.capture.readback import Readback
    from neuraldbg.capture.segment import Segment
    from neuraldbg.capture.wiring import Wiring


class Optimizers:
    """Registers optimizers as they first step; one row each in `StepFacts.optimizer`."""

    def __init__(
        self, survey: Survey, board: ParameterBoard, wiring: Wiring, readback: Readback
    ) -> None:
        self._survey, self._board, self._wiring = survey, board, wiring
        self._readback = readback
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
        known_tensors = [p for p in tensors if id(p) in row_of]
        rows = [row_of[id(p)] for p in known_tensors if not is_shapeless(p)]
        if not rows:
            self._wiring.note_foreign(optimizer)
            return None
        foreign = len(tensors) - len(known_tensors)
        ours = [p for p in known_tensors if not is_shapeless(p)]
        owned = OwnedParameters.of(optimizer, rows, ours, foreign, size)
        self._owned[id(optimizer)] = owned
        row = self._rows.get(id(optimizer))
        if row is not None:  # a group was added
            names = tuple(self._survey.parameters[place].name for place in rows)
            changed = {"parameters": names, "groups": len(optimizer.param_groups)}
            self.infos[row] = self.infos[row].model_copy(update=changed)
        return owned

    def forget(self) -> None:
        """Look anew at what each owns: lazy parameters have their shapes now."""
        self._owned.clear()

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

        `has_stepped` says whether it has made its first step already (see `Succession`).
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
        return self._wiring.succession.appeared(
            optimizer, owned, label, ordinal, has_stepped=has_stepped
        )

    def note_step(self, optimizer: torch.optim.Optimizer, segment: Segment | None = None) -> None:
        """Write the settings with which it has just stepped, as a part of `segment`."""
        row = self._rows[id(optimizer)]
        stepped = self._values[row][OptimizerStat.STEPPED]
        count = 1 if math.isnan(stepped) else int(stepped) + 1
        groups = optimizer.param_groups
        if segment is None or not (self._readback.is_late and any(map(_has_tensors, groups))):
            self._values[row] = gradients.optimizer_row(groups, count)
            return
        self._values[row] = np.full(len(OptimizerStat), np.nan, dtype=np.float32)
        self._values[row][OptimizerStat.STEPPED] = count
        later = [{name: self._plain(value) for name, value in g.items()} for g in groups]
        self._readback.then(partial(_complete, segment, row, later, count))

    def _plain(self, value: Any) -> Any:
        """Return a setting that can be read once it is here."""
        is_tensor = isinstance(value, torch.Tensor) and value.numel() == 1
        return self._readback.number(value) if is_tensor else value

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


def _has_tensors(group: Mapping[str, Any]) -> bool:
    """Whether a setting is a tensor, as the learning rate of a capturable optimizer is."""
    return any(isinstance(value, torch.Tensor) for value in group.values())


def _complete(
    segment: Segment, row: int, groups: Sequence[Mapping[str, Any]], stepped: int
) -> None:
    """Write settings that have come from the device into the step that they are of."""
    segment.settings[row] = gradients.optimizer_row(groups, stepped)
