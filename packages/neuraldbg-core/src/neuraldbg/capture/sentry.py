# SPDX-License-Identifier: MIT
"""What little of the gradients is looked at on every thinned step: whether they came and are sound.

Two parameters stand for all: the first one with a gradient, where most paths of the backward end,
and an early bias, which adds up what comes back through its layer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neuraldbg.capture.cleared import has_any, mark
from neuraldbg.capture.gradients import rates
from neuraldbg.capture.ranks import part_of
from neuraldbg.schema.plain import GRADIENT, PARAMETER

if TYPE_CHECKING:
    from neuraldbg.capture.gradients import OwnedParameters
    from neuraldbg.capture.segment import Segment

GLANCE_SIZE = 16_384
"""Elements of a gradient that is added up on every bare step. Heuristic: some microseconds."""
FEW = 64
"""Elements up to which Python adds them up: between two steps of the training, torch's kernel must
be fetched again, which takes longer than that (measured: 12 us against 6)."""


class Sentry:
    """Watches the gradient of two parameters of the only optimizer.

    Attributes:
        glance: The one whose gradient is added up on bare steps; None: each is too large.
        first: The first with a gradient; None: not chosen yet.
        is_emptied: Whether its gradient is None whenever a backward of this loop begins.
        is_stale: Whether this time it held what was there before.
        frozen: A parameter that required no gradient; None: there was none.
    """

    def __init__(self) -> None:
        self.glance: torch.Tensor | None = None
        self.first: torch.Tensor | None = None
        self.frozen: torch.Tensor | None = None
        self.is_emptied = self.is_stale = False
        self._mark: tuple[int, int] | None = None
        self.began_empty = False
        """Whether there was no gradient when the last backward began."""

    def choose(self, owned: OwnedParameters, closed: Segment) -> bool:
        """Choose them by the gradients of a full step; return whether there were any."""
        if closed.parameter is None:
            return False
        states = closed.parameter[owned.rows, PARAMETER.GRAD_STATE]
        given = [owned.tensors[i] for i in np.flatnonzero(states == GRADIENT.PRESENT)]
        if not given:
            return False
        self.first = given[0]
        bias = next((p for p in given if p.dim() == 1), given[0])
        self.glance = bias if bias.numel() <= GLANCE_SIZE else None
        return True

    def begin(self) -> None:
        """A backward is about to run."""
        self._mark = self._marked()
        self.began_empty = self._mark is None
        is_odd = self.is_emptied and self._mark is not None
        self.is_stale = is_odd and self.first is not None and has_any(self.first.grad)

    def has_moved(self) -> bool:
        """Whether the backward that ended was one of the watched model."""
        return self._marked() != self._mark

    def _marked(self) -> tuple[int, int] | None:
        return mark(None if self.first is None else self.first.grad)

    @property
    def has_flipped(self) -> bool:
        """Whether what was trained is frozen now, or what was frozen is trained."""
        first, frozen = self.first, self.frozen
        return (first is not None and not first.requires_grad) or (
            frozen is not None and frozen.requires_grad
        )

    def is_broken(self) -> bool:
        """Whether NaN or Inf came back through the backward that ended."""
        gradient = None if self.glance is None else self.glance.grad
        return gradient is not None and is_broken(gradient)


def is_broken(gradient: torch.Tensor) -> bool:
    """Whether NaN or Inf are in a gradient."""
    if type(gradient) is not torch.Tensor:
        gradient = part_of(gradient)  # a sum over all ranks would be a collective
    is_few = gradient.dim() == 1 and len(gradient) <= FEW
    return not math.isfinite(sum(gradient.tolist()) if is_few else gradient.sum().item())


def rate(optimizer: torch.optim.Optimizer) -> float:
    """Return its lr, as `OptimizerStat.LR` has it; NaN where it has none."""
    if len(optimizer.param_groups) == 1:  # the same, in a fifth of the time
        return float(optimizer.param_groups[0].get("lr", math.nan))
    return max(rates(optimizer.param_groups), default=math.nan)


def settings(optimizer: torch.optim.Optimizer) -> list[tuple[Any, ...]]:
    """Return what `gradients.optimizer_row` depends on, but for the counts."""
    return [
        (g.get("lr"), g.get("betas"), g.get("momentum"), g.get("weight_decay"), g.get("eps"))
        for g in optimizer.param_groups
    ]
