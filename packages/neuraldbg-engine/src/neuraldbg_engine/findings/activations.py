# SPDX-License-Identifier: LicenseRef-Proprietary
"""Outputs of layers: dead, saturated, growing over depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.symptoms import RECTIFIERS, dead_layers
from neuraldbg_engine.findings.finding import Graded, finding, graded
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case


@finding(
    "activations.dead",
    "core's symptom: 95 % of the units silent in the last tenth of the run",
)
def dead(case: Case) -> Graded | None:
    """A rectifying layer ended with (nearly) all of its units silent."""
    view = case.view
    if not len(view.steps):
        return None
    if not any(layer.activation in RECTIFIERS for layer in view.flow.executed):
        return None
    found = dead_layers(view)
    if not found:
        return graded(0.0)
    paths = view.flow.frontier({one.layer.path for one in found})
    first = next(one for one in found if one.layer.path == paths[0])
    return graded(
        first.share,
        f"{first.share:.0%} of the units of {first.layer.path!r} are silent",
        first.layer.path,
        Onset.exact(view.label(first.row)),
        silent_share=first.share,
        layers=len(found),
    )
