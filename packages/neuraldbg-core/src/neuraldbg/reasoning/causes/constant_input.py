# SPDX-License-Identifier: MIT
"""Constant input: all samples of a batch look the same to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, argument, figure, link
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import InputStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

SAME = 1e-3
"""Standard deviation between samples over RMS."""


def assess(view: CaseView) -> Assessment | None:
    """Look for inputs without variance across samples in a run that does not learn."""
    if not view.is_failing or not view.curve or not len(view.steps) or not view.run.inputs:
        return None
    batch = view.ledger("batch_size")
    if not float(quiet(np.nanmedian, batch)) > 1:
        return None
    spread = quiet(np.nanmedian, view.inputs(InputStat.SAMPLE_SPREAD), axis=0)
    floats = [
        i for i, x in enumerate(view.run.inputs) if "float" in x.dtype and np.isfinite(spread[i])
    ]
    if (
        not floats
        or len(floats) < len(view.run.inputs)
        or not all(spread[i] < SAME for i in floats)
    ):
        return None
    step, name = view.label(0), view.run.inputs[floats[0]].name
    return Assessment(
        cause="constant_input",
        failure=FailureType.DATA_ANOMALY,
        confidence=0.85,
        description=(
            f"Constant input from step {step}: samples of {argument(name)} differ by "
            f"{figure(float(spread[floats[0]]))} of their size, so all look the same."
        ),
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["data_anomaly", "representation_collapse"]),
        chain=(link(None, step, "preprocessing left no difference between samples"),),
        explains=frozenset(
            {
                "labels_unrelated_to_inputs",
                "embedding_collapse",
                "unknown",
                "unnormalized_input",
                "dying_relu",
                "lr_too_low",
            }
        ),
    )
