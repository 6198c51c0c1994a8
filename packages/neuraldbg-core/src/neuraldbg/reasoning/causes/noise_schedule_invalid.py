# SPDX-License-Identifier: MIT
"""Noise schedule invalid: a diffusion model's noised input is not finite for some time steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, argument, link
from neuraldbg.reasoning.inputs import EXPLAINED, harmed_rows
from neuraldbg.schema.facts import InputStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

CAUSE = "noise_schedule_invalid"


def assess(view: CaseView) -> Assessment | None:
    """Look for NaN in a float input beside one number per sample: a time step or noise level.

    Where capture found the schedule among the loop's own tensors, it says what is wrong with it;
    else the root of a negative alpha-bar shows as NaN in what enters, and nothing more.
    """
    seen = _seen(view)
    if seen is not None:
        return seen
    nan = view.inputs(InputStat.NAN)
    batch = view.ledger("batch_size")
    if not nan.size or not len(view.steps):
        return None
    harmed = harmed_rows(view)
    times = [
        i for i, x in enumerate(view.run.inputs) if x.shape and np.prod(x.shape) == x.shape[0] > 1
    ]
    for column, info in enumerate(view.run.inputs):
        rows = np.flatnonzero((nan[:, column] == 1.0) & harmed)
        if "float" not in info.dtype or column in times or not times or not len(rows):
            continue
        if info.shape[:1] != (int(np.nanmedian(batch)),):
            continue
        step = view.label(int(rows[0]))
        return Assessment(
            cause=CAUSE,
            failure=FailureType.NUMERICAL_ERROR,
            confidence=0.45,
            description=(
                f"Noise schedule invalid, perhaps, at step {step}: {argument(info.name)} holds NaN "
                f"beside {argument(view.run.inputs[times[0]].name)}, one number per sample; the "
                "root of a negative alpha-bar would make it so."
            ),
            onset=step,
            onset_range=(step, step),
            evidence=view.events(types=["data_anomaly"], until=step + 1),
            chain=(link(None, step, "the noised input is not finite for some time steps"),),
        )
    return None


def _seen(view: CaseView) -> Assessment | None:
    """Return the assessment of a schedule that capture looked at and found out of range."""
    for kind in ("nonfinite_input", "nonfinite_parameter"):
        for note in view.observations.get(kind, []):
            if note.words.get("cause") != CAUSE or not view.is_failing:
                continue
            what = note.words.get("argument", "").rpartition("; ")[2]
            if kind == "nonfinite_parameter":
                what = f"`{note.words.get('name', '')}` holds {what}"
            return Assessment(
                cause=CAUSE,
                failure=FailureType.NUMERICAL_ERROR,
                confidence=0.96,
                description=(
                    f"Noise schedule invalid at step {note.step}: {what}, so the noised input is "
                    "not finite for those time steps."
                ),
                layer=note.layer or None,
                onset=note.step,
                onset_range=(note.step, note.step),
                evidence=view.events(types=["data_anomaly"], until=note.step + 1),
                chain=(
                    link(None, note.step, f"the schedule is out of range: {what}"),
                    link(None, note.step, "the root of a negative number enters the model as NaN"),
                ),
                explains=EXPLAINED | {"nan_in_input", "inf_in_input", "zero_variance_feature"},
                is_direct=True,
            )
    return None
