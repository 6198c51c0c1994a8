# SPDX-License-Identifier: MIT
"""Targets that the output's activation cannot reach."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from neuraldbg.capture.objective.activations import LAYOUT, activation_of
from neuraldbg.capture.objective.losses import REGRESSIONS, Term, difference
from neuraldbg.capture.objective.reading import rows
from neuraldbg.capture.objective.tape import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

RANGES = {
    "relu": (0.0, math.inf),
    "softplus": (0.0, math.inf),
    "exp": (0.0, math.inf),
    "abs": (0.0, math.inf),
    "sigmoid": (0.0, 1.0),
    "hardsigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "hardtanh": (-1.0, 1.0),
    "relu6": (0.0, 6.0),
    "logsigmoid": (-math.inf, 0.0),
    "log_softmax": (-math.inf, 0.0),
    "elu": (-1.0, math.inf),
}
OUTSIDE = 0.05
"""Share of targets out of reach that is a fault. Heuristic: noise around the edge stays below."""
MARGIN = 0.05
"""How far outside counts, in standard deviations of the targets. Heuristic, as above."""
ENOUGH = 64


class TargetOutOfRange:
    """Compares targets with what the output can reach.

    `[0, inf)` after ReLU, `[0, 1]` after a sigmoid, `[-1, 1]` after tanh, ...: for regression, and
    for the labels of binary cross-entropy.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], tuple[int, int]] = {}
        self._told: set[tuple[str, int]] = set()

    def observe(self, view: View) -> Iterable[Observation]:
        """Count the targets outside the range of each term's output."""
        for at, term in enumerate(view.terms):
            key = (view.signature, at)
            if key in self._told or len(self._seen) > 64:
                continue
            reach = self._reach(view, term)
            target = None if reach is None else self._target(view, term)
            if reach is None or target is None or not target.numel():
                continue
            (low, high), name = reach
            margin = MARGIN * float(target.std(correction=0)) + 1e-3
            outside = int(((target < low - margin) | (target > high + margin)).sum())
            old_outside, old_count = self._seen.get(key, (0, 0))
            self._seen[key] = outside, count = old_outside + outside, old_count + target.numel()
            if count >= ENOUGH and outside >= OUTSIDE * count:
                self._told.add(key)
                yield view.observation(
                    "target_out_of_range",
                    view.layer_of(term.feed),
                    is_since_first=True,
                    confidence=0.95 if outside > 0.1 * count else 0.8,
                    figures={
                        "share": outside / count,
                        "low": low,
                        "high": high,
                        "target_minimum": float(target.min()),
                        "target_maximum": float(target.max()),
                    },
                    cause="output_range_mismatch",
                    activation=name,
                    loss=term.name,
                )

    def _reach(self, view: View, term: Term) -> tuple[tuple[float, float], str] | None:
        if term.name == "bce_with_logits":
            return (0.0, 1.0), "sigmoid"
        if term.name not in REGRESSIONS or term.feed == NONE or term.is_weighted:
            return None
        place = view.tape.through(term.feed, LAYOUT)
        if place == NONE:
            return None
        node, name = view.tape.nodes[place], view.tape.names[place]
        applied = {"Exp": "exp", "Abs": "abs"}.get(name) or activation_of(node, name)
        if applied == "hardtanh":
            low, high = (view.tape.saved(place, s) for s in ("min_val", "max_val"))
            return (float(low), float(high)), applied
        return (RANGES[applied], applied) if applied in RANGES else None

    def _target(self, view: View, term: Term) -> torch.Tensor | None:
        """Return the targets, recovered from output and difference where a loss is hand-written."""
        gap = difference(view.tape, term.place)
        if gap == NONE:
            if view.tape.inputs[term.place][-1:] not in {(), (NONE,)}:
                return None  # the target has a gradient too: two outputs are compared
            return rows(view.tape.saved(term.place, "target"), limit=1024)
        sides = view.tape.inputs[gap]
        output = rows(view.tape.saved(term.feed, "result"), limit=1024)
        apart = rows(view.tape.saved(term.place, "self"), limit=1024)
        if output is None or apart is None or sides.count(NONE) != 1:
            return None
        if output.numel() != apart.numel():
            return None
        output = output.reshape(apart.shape)
        return output - apart if sides[0] != NONE else output + apart
