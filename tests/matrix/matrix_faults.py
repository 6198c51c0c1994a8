# SPDX-License-Identifier: MIT
"""General faults, the same over every set-up: each knows how to break a run and what is then true.

A fault touches only what the laboratory's loop gives it: a model with a layer `middle` before a
ReLU `bend`, optimizers, a batch, the call that clears gradients. None knows any set-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

if TYPE_CHECKING:
    from matrix_lab import Lab

AT = 20
"""The step at which a fault of the middle of the run begins."""


class Truth(NamedTuple):
    """What a fault is, as a session should tell it: several where either is a fair answer."""

    failure_types: tuple[str, ...]
    layers: tuple[str | None, ...]
    steps: tuple[int, int]
    is_leading: bool = True


class Fault:
    """No fault at all: each method leaves everything as it is."""

    name = "none"
    title = "none"
    truth: Truth

    def build(self, model: nn.Module) -> None:
        """Change a model as it is made."""

    def begin(self, lab: Lab) -> None:
        """Change weights or rates before step `lab.step`."""

    def inputs(self, lab: Lab, x: torch.Tensor) -> torch.Tensor:
        """Return the inputs of the model."""
        return x

    def clears(self, lab: Lab) -> bool:
        """Whether the loop clears gradients on this step."""
        return True


class NanBatch(Fault):
    """One number of one batch is NaN."""

    name, title = "nan_batch", "NaN in a batch"
    truth = Truth(("data_anomaly",), (None, "stem"), (AT, AT))

    def inputs(self, lab, x):
        if lab.step == AT:
            x = x.clone()
            x[0, 0] = float("nan")
        return x


class RateJump(Fault):
    """Every learning rate a thousand times too high from one step on."""

    name, title = "rate_jump", "rate x 1,000"
    truth = Truth(("optimizer_instability",), (None,), (AT, AT + 3))

    def begin(self, lab):
        if lab.step == AT:
            for optimizer in lab.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] *= 1000.0


class DeadRelu(Fault):
    """The bias before a ReLU is pushed so far down that none of its units fires again."""

    name, title = "dead_relu", "dead ReLU"
    # The loss that stops is a failure of its own, and may come first.
    truth = Truth(("dead_neurons",), ("middle", "bend"), (AT, AT + 1), is_leading=False)

    def begin(self, lab):
        if lab.step == AT:
            with torch.no_grad():
                lab.bias().sub_(1000.0)


class Detach(nn.Module):
    """Cuts the graph."""

    def forward(self, x):
        return x.detach()


class Detached(Fault):
    """Nothing below `bend` gets a gradient, from the first step on."""

    name, title = "detached", "detached block"
    truth = Truth(("training_wiring",), ("stem", "middle", "bend", "bend.1"), (0, 1))

    def build(self, model):
        model.bend = nn.Sequential(model.bend, Detach())


class Uncleared(Fault):
    """`zero_grad` is not called any more."""

    name, title = "uncleared", "no `zero_grad`"
    truth = Truth(("training_wiring",), (None,), (AT, AT + 1))

    def clears(self, lab):
        return lab.step < AT


FAULTS = (NanBatch(), RateJump(), DeadRelu(), Detached(), Uncleared())
