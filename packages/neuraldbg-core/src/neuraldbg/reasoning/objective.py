# SPDX-License-Identifier: MIT
"""What the main loss is, as the audit of its graph saw it, and what an ignorant model scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.schema.facts import Observation
    from neuraldbg.trace import Trace

CLASSIFICATIONS = ("cross_entropy", "nll")
SQUARED = ("mse",)
ABSOLUTE = ("l1", "smooth_l1", "huber")
WEIGHED = frozenset({"log_probability", "log_density"})
"""Logarithms of how likely a choice was, weighed by what it brought."""
POLICIES = WEIGHED | {"clipped_surrogate"}
"""Terms that reinforce choices: they measure no error."""
BINARY = ("bce", "bce_with_logits", "binary_cross_entropy")
COMPARING = frozenset((*CLASSIFICATIONS, *SQUARED, *ABSOLUTE, *BINARY))
"""Terms that compare outputs with targets, one by one."""


@dataclass(frozen=True)
class Objective:
    """The terms of the main loss."""

    names: tuple[str, ...]
    is_single: bool
    """Whether the loss is one recognised term, averaged and not scaled."""
    is_summed: bool
    classes: int
    entropy: float
    """Of the labels, in nats; NaN where unknown."""
    target_mean: float
    is_own_target: bool
    """Whether what outputs are compared with is not data: its figures were never seen."""
    target_variance: float
    """Of regression targets (or labels of a binary loss); NaN where unknown."""

    @property
    def is_classification(self) -> bool:
        """Whether classes are compared with scores."""
        return any(name in CLASSIFICATIONS for name in self.names)

    @property
    def is_squared(self) -> bool:
        """Whether it is a mean squared error."""
        return any(name in SQUARED for name in self.names)

    @property
    def is_absolute(self) -> bool:
        """Whether it grows with the distance, not its square."""
        return any(name in ABSOLUTE for name in self.names)

    @property
    def is_policy(self) -> bool:
        """Whether it reinforces choices by what they brought."""
        return any(name in POLICIES for name in self.names)

    @property
    def is_supervised(self) -> bool:
        """Whether outputs are compared with given targets, one by one."""
        return not self.is_own_target and any(name in COMPARING for name in self.names)

    @property
    def ignorant(self) -> float:
        """Loss of the best constant answer; NaN where it cannot be told."""
        if not self.is_single:
            return math.nan
        name = self.names[0]
        if name in CLASSIFICATIONS:
            if math.isfinite(self.entropy) and self.entropy > 0:
                return self.entropy
            return math.log(self.classes) if self.classes >= 2 else math.nan
        if name in SQUARED:
            return self.target_variance
        if name in ABSOLUTE:
            return _absolute(name, math.sqrt(max(self.target_variance, 0.0)))
        return _binary_entropy(self.target_mean) if name in BINARY else math.nan


def _binary_entropy(p: float) -> float:
    return -p * math.log(p) - (1 - p) * math.log(1 - p) if 0.0 < p < 1.0 else math.nan


def _absolute(name: str, spread: float) -> float:
    """Mean absolute error of the mean, for Gaussian targets; Huber's is quadratic below 1."""
    mean = 0.8 * spread
    return mean if name == "l1" else min(0.5 * spread**2, mean)


def objective_of(trace: Trace) -> Objective:
    """Return the terms of the main loss: of the latest look at it, the most telling one."""
    notes = [note for note in trace.observations if note.kind == "loss_function"]
    if not notes:
        return Objective((), False, False, 0, math.nan, math.nan, False, math.nan)  # noqa: FBT003
    names = tuple(dict.fromkeys(note.words.get("name", "") for note in notes))
    best = max(notes, key=_telling)
    figures = best.figures
    terms = max(note.figures.get("terms", 1.0) for note in notes)
    factor = figures.get("factor", 1.0)
    reduction = best.words.get("reduction", "mean")
    return Objective(
        names=names,
        is_single=terms == 1 and len(names) == 1 and factor == 1.0 and reduction == "mean",
        is_summed=any("sum" in note.words.get("reduction", "") for note in notes),
        classes=int(figures.get("classes", 0)),
        entropy=figures.get("label_entropy", math.nan),
        target_mean=figures.get("target_mean", math.nan),
        is_own_target=all(n.figures.get("is_learned_target") for n in _comparing(notes))
        or (len({n.step for n in notes}) > 1 and not any(_telling(n)[0] for n in notes)),
        target_variance=figures.get("target_variance", math.nan),
    )


def _comparing(notes: list[Observation]) -> list[Observation]:
    """Return the terms that compare outputs with targets; all, where none is known to."""
    return [note for note in notes if note.words.get("name") in COMPARING] or notes


def _telling(note: Observation) -> tuple[bool, float]:
    knows = "label_entropy" in note.figures or "target_variance" in note.figures
    return knows, note.figures.get("targets", 0.0)
