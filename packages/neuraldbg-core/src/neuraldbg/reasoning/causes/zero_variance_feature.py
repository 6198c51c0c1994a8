# SPDX-License-Identifier: MIT
"""Zero-variance feature: a constant feature was divided by its own zero spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, argument, figure, link
from neuraldbg.reasoning.inputs import harmed_rows, pattern_at
from neuraldbg.schema.facts import InputStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

HUGE = 1e4
"""Largest input over the input's RMS that no standardised feature reaches."""


def assess(view: CaseView) -> Assessment | None:
    """Look for NaN or huge values in a table of features with a constant one among them."""
    nan, inf = view.inputs(InputStat.NAN), view.inputs(InputStat.INF)
    constant, highest = view.inputs(InputStat.CONSTANT_SHARE), view.inputs(InputStat.MAX)
    harmed = harmed_rows(view) if len(view.steps) else np.zeros(0, dtype=bool)
    for column, info in enumerate(view.run.inputs):
        if "float" not in info.dtype or len(info.shape) != 2:
            continue
        broken = (nan[:, column] == 1) | (inf[:, column] == 1)
        hits = np.flatnonzero(broken & harmed)
        # Nothing is known of the spread of a batch that is not finite.
        had_constant = bool(np.nanmax(constant[~broken, column], initial=0.0) > 0)
        huge = np.flatnonzero(np.abs(highest[:, column]) > HUGE)
        if len(hits):
            row, word, confidence = int(hits[0]), "NaN or Inf", 0.6
            if pattern_at(view, view.label(row)) == "whole_features":
                confidence = 0.9
            elif not had_constant:
                continue
        elif len(huge) and had_constant and view.is_failing:
            row, word, confidence = int(huge[0]), figure(float(highest[huge[0], column])), 0.6
        else:
            continue
        step = view.label(row)
        return Assessment(
            cause="zero_variance_feature",
            failure=FailureType.DATA_ANOMALY,
            confidence=confidence,
            description=(
                f"Zero-variance feature at step {step}: a feature of {argument(info.name)} is "
                f"{word}, as a constant feature becomes when divided by its spread."
            ),
            onset=step,
            onset_range=(step, step),
            evidence=view.events(types=["data_anomaly"], until=step + 1),
            chain=(link(None, step, "a feature without variance is divided by (almost) zero"),),
            explains=frozenset({"unknown"}),
        )
    return None
