# SPDX-License-Identifier: MIT
"""Missing warmup: an adaptive optimizer starts a transformer at full lr and wrecks it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.causes.lr_too_high import HUGE_STEP
from neuraldbg.reasoning.symptoms import broke_at_once
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Look for full lr from step 0 on an attention model that does not learn.

    No warmup makes steps of a tenth of the weights bearable: beyond that the lr itself comes first.
    """
    curve = view.curve
    if not curve or not view.is_failing or not view.is_adaptive or not view.flow.has_attention:
        return None
    if len(view.lr) < 10 or not np.isfinite(view.lr[0]):
        return None
    peak = float(quiet(np.nanmax, view.lr))
    start = float(quiet(np.nanmedian, view.step_size[:5]))
    if view.lr[0] < 0.5 * peak or not start > 0.01 or broke_at_once(view):
        return None
    step = view.label(0)
    return Assessment(
        cause="missing_warmup",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.55 if start > HUGE_STEP else 0.6 + 0.15 * (start > 0.03),
        description=(
            f"Warmup missing from step {step}: {next(iter(view.optimizer_kinds))} starts an "
            f"attention model at its full lr {figure(peak)}, its first steps move the weights by "
            f"{100 * start:.2g} % each, and the loss never falls properly."
        ),
        onset=step,
        onset_range=(step, view.label(min(20, len(view.steps) - 1))),
        evidence=view.events(types=["optimizer_instability", "gradient_health_transition"]),
        chain=(
            link(None, step, "the second moments know nothing yet and the lr is already full"),
            link(None, step, "attention and norms are thrown off before they could adapt"),
        ),
        explains=frozenset(
            {
                "unknown",
                "labels_unrelated_to_inputs",
                "embedding_collapse",
                "attention_collapse",
                "oversmoothing",
            }
        ),
    )
