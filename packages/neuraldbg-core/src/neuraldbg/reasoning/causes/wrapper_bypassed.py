# SPDX-License-Identifier: MIT
"""Wrapper bypassed: the loop calls the module inside DDP, so no gradient is ever averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.loop import loop_fault

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Report steps whose forwards went past the wrapper; in a merged trace the weights decide."""
    notes = view.observations.get("wrapper_bypassed", [])
    if not notes or (view.run.ranks and "rank_divergence" not in view.observations):
        return None
    note = notes[0]
    return loop_fault(
        view,
        "rank_divergence",
        note.step,
        "the model is called past its DistributedDataParallel wrapper (`wrapper.module(x)`, or the "
        "module that was wrapped), so gradients are not averaged and each of "
        f"{view.run.world_size} ranks trains a model of its own",
        float(note.figures.get("confidence", 0.9)),
    )
