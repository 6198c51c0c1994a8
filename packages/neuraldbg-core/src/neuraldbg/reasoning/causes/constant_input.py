# SPDX-License-Identifier: MIT
"""Constant input: all samples of a batch look the same to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, argument, figure, link
from neuraldbg.reasoning.loop import lasting_from
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
    spread = view.inputs(InputStat.SAMPLE_SPREAD)
    known = np.asarray(np.isfinite(spread).any(axis=0))
    floats = [i for i, x in enumerate(view.run.inputs) if "float" in x.dtype and known[i]]
    if not floats or len(floats) < len(view.run.inputs):
        return None
    widest = np.max(spread[:, floats], axis=1)
    measured = np.flatnonzero(np.isfinite(widest))
    first = lasting_from(np.less(widest[measured], SAME))
    if first is None or (first and view.objective.is_policy):
        return None  # a policy chooses what it sees next, and may come to choose one place
    row, name = int(measured[first]), view.run.inputs[floats[0]].name
    earliest = view.label(int(measured[first - 1])) + 1 if first else view.label(0)
    events = view.events(types=["data_anomaly", "representation_collapse"])
    seen = [e.step for e in events if earliest <= e.step <= view.label(row)]
    step = min(seen, default=view.label(row))
    return Assessment(
        cause="constant_input",
        failure=FailureType.DATA_ANOMALY,
        confidence=0.85,
        description=(
            f"Constant input from step {step}: samples of {argument(name)} differ by "
            f"{figure(float(spread[row, floats[0]]))} of their size, so all look the same."
        ),
        onset=step,
        onset_range=(step if seen else earliest, step),
        evidence=events,
        chain=(link(None, step, "preprocessing left no difference between samples"),),
        explains=frozenset(
            {
                "labels_unrelated_to_inputs",
                "input_distribution_shift",
                "embedding_collapse",
                "unknown",
                "unnormalized_input",
                "dying_relu",
                "lr_too_low",
            }
        ),
    )
