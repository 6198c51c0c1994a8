# SPDX-License-Identifier: MIT
"""Accumulation unscaled: several backward passes add up before each step, undivided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.loop import loop_fault

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Report unstable or failing runs that accumulate undivided losses.

    An adaptive optimizer divides the factor out again: there it is no cause.
    """
    notes = view.observations.get("accumulation_unscaled", [])
    if not notes or not view.is_failing or view.is_adaptive or len(view.run.models) > 1:
        return None
    passes = notes[0].figures.get("backwards", 0.0)
    return loop_fault(
        view,
        "accumulation_unscaled",
        notes[0].step,
        f"{passes:.0f} backward passes add up before each optimizer step and the loss is not "
        "divided by their number",
        0.85,
    )
