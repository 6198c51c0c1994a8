# SPDX-License-Identifier: MIT
"""Missing zero_grad: gradients of earlier steps are still there when the next backward begins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg.reasoning.cause import named
from neuraldbg.reasoning.loop import lasting_from, loop_fault, since, working

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Report a loop whose gradients are (nearly) never cleared before a step's first backward."""
    if not len(view.steps):
        return None
    dirty = (view.ledger("is_cleared") < 0.5) & working(view)
    row = lasting_from(dirty)
    if row is None:
        return None
    step = max(since(view, row, "gradients_not_cleared") - 1, view.label(0))
    places = {note.layer for note in view.observations.get("gradients_not_cleared", ())}
    layer = places.pop() if len(places) == 1 else None
    whose = f"gradients of {named(layer)}" if layer else "gradients"
    found = loop_fault(
        view,
        "missing_zero_grad",
        step,
        f"{whose} are not cleared between optimizer steps, so each step repeats all earlier ones",
        0.9,
    )
    return replace(found, layer=layer)
