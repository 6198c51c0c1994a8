# SPDX-License-Identifier: MIT
"""Targets that are all the same: of a binary loss, or one class of many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.objective.activations import VIEWS, WEIGHTED
from neuraldbg.capture.objective.tape import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

ENOUGH = 256
"""Targets, and batches below, before anything is said. Heuristic: a rare class shows by then."""
BATCHES = 4


class DegenerateTargets:
    """Reports a cross-entropy whose targets hold one value only, batch after batch.

    Silent where several terms or several models are trained (the real and the fake half of a
    discriminator's loss each have constant targets), and for every other loss: residuals
    regressed to 0 and contrastive losses with the positive in column 0 are deliberate.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int, int]] = {}
        self._varied: set[str] = set()

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at the targets of a loss that is one binary cross-entropy."""
        if len(view.terms) != 1 or view.signature in self._varied:
            return
        if "" not in view.modules and view.modules:
            return
        (term,) = view.terms
        target = view.tape.saved(term.place, "target")
        if not isinstance(target, torch.Tensor) or not target.numel():
            return
        if not (term.name.startswith("bce") or self._is_head(view, term.feed)):
            return
        low, high = (float(v) for v in torch.aminmax(target.detach()))
        value, count, batches = self._seen.get(view.signature, (low, 0, 0))
        if low != high or low != value:
            self._varied.add(view.signature)
            return
        self._seen[view.signature] = value, count + target.numel(), batches + 1
        if count + target.numel() >= ENOUGH and batches + 1 >= BATCHES:
            yield view.observation(
                "degenerate_targets",
                None,
                is_since_first=True,
                confidence=0.85,
                figures={"value": value, "targets": count + target.numel()},
                cause="degenerate_targets",
                loss=term.name,
            )

    def _is_head(self, view: View, place: int) -> bool:
        """Whether class scores come from a layer with a weight of its own, as many rows as classes.

        Similarities, with the positive in column 0 and all targets 0, do not.
        """
        tape = view.tape
        at = tape.through(place, frozenset({*VIEWS, "LogSoftmax"})) if place != NONE else NONE
        if at == NONE or tape.names[at] not in WEIGHTED:
            return False
        below = (tape.through(i, limit=4) for i in tape.inputs[at] if i != NONE)
        return any(i != NONE and tape.names[i] == "AccumulateGrad" for i in below)
