# SPDX-License-Identifier: MIT
"""Rank divergence: weights that should be equal on all ranks part, as a merged trace shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.causes.observed import SYMPTOMATIC
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.reasoning.view import CaseView

APART = 1e-2
"""Relative difference of gradient norms or learning rates that is no rounding."""
CONFIDENCE = 0.95
"""The weights themselves are the evidence."""


def assess(view: CaseView) -> Assessment | None:
    """Tell since when the ranks differ, and what of the loop parted them."""
    notes = view.observations.get("rank_divergence", [])
    if not notes:
        return None
    note = notes[0]
    layer, step, figures = note.layer, note.step, note.figures
    why, mechanism = _reason(figures, step, is_bypassed="wrapper_bypassed" in view.observations)
    where = "" if layer is None else f" in {named(layer)}"
    good = int(figures.get("good", -1.0))
    return Assessment(
        cause="rank_divergence",
        failure=FailureType.TRAINING_WIRING,
        confidence=CONFIDENCE,
        description=(
            f"Rank divergence{where} at step {step}: {why}; by the end copies of the same weights "
            f"differ by up to {100 * figures.get('difference', 0.0):.2g} % in size "
            f"({figure(figures.get('parameters', 1.0))} of {figure(figures.get('of', 1.0))} "
            f"parameters, {note.words.get('parameter', '')} first)."
        ),
        layer=layer,
        onset=step,
        onset_range=(max(good, 0), step),
        evidence=tuple(e for e in view.trace.events if e.to_state in KINDS)[:3],
        chain=(
            link(layer, step, mechanism),
            link(layer, step, "the ranks train models that are no longer the same"),
        ),
        explains=SYMPTOMATIC,
        is_direct=True,
    )


KINDS = frozenset({"rank_divergence", "wrapper_bypassed"})


def _reason(figures: Mapping[str, float], step: int, *, is_bypassed: bool) -> tuple[str, str]:
    """Return what parted the ranks, as a clause of the sentence and as a link of the chain."""
    if is_bypassed:
        why = (
            "the model is called past its DistributedDataParallel wrapper, so gradients are never "
            "averaged"
        )
        how = "the forward goes past the wrapper, so each rank steps with gradients of its own"
    elif figures.get("starts_apart", 0.0):
        why = "the ranks start from different weights, and nothing broadcast those of one to all"
        how = "weights are initialised from different random numbers"
    elif figures.get("gradients_apart", 0.0) > APART:
        why = "each rank steps with gradients of its own: nothing averages them"
        how = "gradients of the ranks are not averaged"
    elif figures.get("lr_apart", 0.0) > APART:
        apart = f"{100 * figures['lr_apart']:.2g} %"
        why = f"the ranks take steps of different sizes, their learning rates differ by {apart}"
        how = "the learning rate was changed on some of the ranks only"
    else:
        why = "gradients agree and weights do not, so something else changed them on some ranks"
        how = f"weights are changed on some of the ranks at step {step}"
    return why, how
