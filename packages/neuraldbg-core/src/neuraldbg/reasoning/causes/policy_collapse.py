# SPDX-License-Identifier: MIT
"""Policy collapse: within a few updates a policy is certain of its choices and learns no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

CERTAIN = 12.0
"""RMS of the logits: differences of this size leave every other choice a chance of 1e-5."""
BIASED = 4.0
"""The same where returns never fall below their baseline, so that nothing draws the policy back: a
chance of 1e-3 for every other choice."""
STAYED = 1.5
"""Growth of those logits after that, up to the end: it has stopped where it stood early on."""
SOON = 0.2
"""Share of the run by which it must have happened: a policy that has learned ends certain."""
LARGE_STEP = 0.03


def assess(view: CaseView) -> Assessment | None:
    """Look for logits of a policy-gradient loss that ran away at once, under large steps."""
    if not view.objective.is_policy or not len(view.steps) or view.is_broken:
        return None
    if "log_density" in view.objective.names:
        return None  # means and widths are no logits
    if not float(quiet(np.nanmedian, view.step_size[:6])) > LARGE_STEP:
        return None
    for layer in view.flow.outputs:
        rms = view.activation(ActivationStat.RMS)[:, view.flow.row[layer.path]]
        certain = _certain(view, rms)
        rows = np.flatnonzero(rms > certain)
        if layer.units < 2 or not len(rows) or rows[0] > SOON * len(rms):
            continue
        if not float(view.late(rms)) > certain:
            continue
        start = view.label(0)
        onset = view.label(int(np.flatnonzero(rms > 0.25 * certain)[0]))
        return Assessment(
            cause="policy_collapse",
            failure=FailureType.REPRESENTATION_COLLAPSE,
            confidence=0.7,
            description=(
                f"Policy collapse in {named(layer.path)} by step {onset}: its logits grew to RMS "
                f"{figure(float(view.late(rms)))} within {int(rows[0])} updates, so the policy is "
                "certain of its choices and tries no other."
            ),
            layer=layer.path,
            onset=onset,
            onset_range=(start, onset),
            evidence=view.events(types=["representation_collapse", "optimizer_instability"]),
            chain=(
                link(None, start, "large steps on raw returns push the logits apart"),
                link(layer.path, onset, "the policy is certain, and its gradient is gone"),
            ),
            explains=frozenset({"unknown", "lr_too_high", "embedding_collapse"}),
        )
    return None


def _certain(view: CaseView, rms: NDArray[np.float64]) -> float:
    """Return the size of logits `[T]` from which the policy counts as certain."""
    if "one_sided_praise" not in view.observations:
        return CERTAIN
    early = rms[: int(SOON * len(rms))]
    then = float(quiet(np.nanmedian, early[np.isfinite(early)][-8:]))
    return BIASED if float(view.late(rms)) < STAYED * then else CERTAIN
