# SPDX-License-Identifier: MIT
"""Binary targets that are all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

ENOUGH = 256
"""Targets, and batches below, before anything is said. Heuristic: a rare class shows by then."""
BATCHES = 4


class DegenerateTargets:
    """Reports a binary cross-entropy whose targets hold one value only, batch after batch.

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
        if not term.name.startswith("bce") or not isinstance(target, torch.Tensor):
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
