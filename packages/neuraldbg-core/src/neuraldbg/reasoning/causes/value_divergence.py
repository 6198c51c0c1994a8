# SPDX-License-Identifier: MIT
"""Value divergence: a model chases targets that it computes itself, and both grow without bound."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.causes.lr_too_high import HUGE_STEP
from neuraldbg.reasoning.symptoms import departure_row, output_rms, own_target_since, runs_away
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

CHASED = 5.0
"""Least targets over those of the start. Heuristic: batches of one task differ by less."""
CLEAR, LOOKS = 0.25, 3
"""Share of the outputs that the error must leave over, on all but one of so many latest looks."""
AFTER = 10
"""Steps from a look on whose median error is taken. Heuristic: a copy is renewed now and then, and
the error leaps where it is and then falls: odd steps are looked at. A run that blows up errs more
after the look than at it."""
GROWTH = 8.0
"""Last over first output RMS."""
PLAYED = 0.05
"""Share of the updates before which the model was run without gradients: at most twenty updates are
made of one batch of experience. Heuristic."""


def assess(view: CaseView) -> Assessment | None:
    """Look for outputs that grow along with a loss whose targets come from the same model."""
    curve = view.curve
    if not curve or curve.is_signed:
        return None
    since = own_target_since(view)
    if since is None and not _is_bootstrapped(view):
        return _chased(view)
    outputs, since = output_rms(view), since or 0
    first, last = float(view.early(outputs)), float(view.late(outputs))
    start = curve.start
    if since:
        index = int(np.searchsorted(curve.steps, view.label(since)))
        start, first = curve.level(index - AFTER, index), float(view.late(outputs[:since]))
    if not (np.isfinite(first) and first > 0) or not (last > GROWTH * first or view.is_broken):
        return None
    grown = curve.end / max(start, 1e-12)
    if not (grown > 3 or curve.is_broken):
        return None
    began = view.label(since)
    rows = np.flatnonzero(outputs[since:] > 2 * max(first, 1e-12))
    onset = view.label(since + int(rows[0])) if len(rows) else began
    told = began if since else onset
    return Assessment(
        cause="value_divergence",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.85,
        description=(
            f"Value divergence from step {told}: the targets come from the network that is being "
            f"trained, its outputs grew from {figure(first)} to {figure(last)}, and the loss by a "
            f"factor of {figure(grown)}."
        ),
        onset=told if since else min(onset, view.label(min(20, len(view.steps) - 1))),
        onset_range=(began, onset),
        evidence=view.events(types=["optimizer_instability", "gradient_health_transition"]),
        chain=(
            link(None, began, "targets are computed with the network that is trained"),
            link(None, onset, "each update raises the targets it chases"),
        ),
        explains=frozenset(
            {
                "lr_too_high",
                "missing_gradient_clipping",
                "saturating_activations",
                "missing_zero_grad",
                "unknown",
                "stale_second_moment",
                "unnormalized_target",
                "unnormalized_input",
            }
        ),
    )


def _chased(view: CaseView) -> Assessment | None:
    """Look for targets that grow with the outputs though no data does: they are made of them.

    A copy of the network that computes the targets is not seen. By the triangle inequality the
    targets are at least outputs less error, and the audit saw what they were at the start.
    """
    if len(view.run.models) > 1 or not view.objective.is_squared or not runs_away(view):
        return None
    target = float(np.hypot(view.objective.target_mean, np.sqrt(view.objective.target_variance)))
    if not (view.objective.is_single and target > 0):
        return None
    last, implied = _implied(view)
    if not implied > CHASED * target:
        return None
    row = departure_row(view)
    onset = view.label(row) if row is not None else view.label(0)
    return Assessment(
        cause="value_divergence",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.7,
        description=(
            f"Value divergence from step {onset}: outputs grew to {figure(last)} and the error "
            f"stayed below that, so the targets, at first of RMS {figure(target)}, grew to at "
            f"least {figure(implied)}: they are computed from the model's own values, and the "
            f"loss runs away with them, to {figure(view.curve.end)}."
        ),
        onset=onset,
        onset_range=(view.label(0), onset),
        evidence=view.events(types=["optimizer_instability", "gradient_health_transition"]),
        chain=(
            link(None, view.label(0), "targets are computed from the model's own values"),
            link(None, onset, "each update raises the targets it chases (is gamma below 1?)"),
        ),
        explains=frozenset({"lr_too_high", "missing_gradient_clipping", "unknown"}),
    )


def _implied(view: CaseView) -> tuple[float, float]:
    """Return (outputs, least targets), as RMS, of the latest measured steps; NaN: error is all.

    An error as large as the outputs says nothing of the targets: so does any rate that is too high.
    """
    outputs = output_rms(view)[: view.broken_row]
    rows = np.flatnonzero(np.isfinite(outputs))[-LOOKS:]
    at = np.searchsorted(view.curve.steps, [view.label(int(row)) for row in rows])
    if len(rows) < LOOKS or at[-1] >= len(view.curve):
        return math.nan, math.nan
    usual = np.array([view.curve.level(int(i), int(i) + AFTER) for i in at])
    least = outputs[rows] - np.sqrt(np.abs(usual))
    clear = np.flatnonzero(least > CLEAR * outputs[rows])
    if len(clear) < LOOKS - 1:
        return math.nan, math.nan
    return float(outputs[rows[clear[-1]]]), float(np.max(least[clear]))


def _is_bootstrapped(view: CaseView) -> bool:
    """Whether a policy's loss has a value term whose targets came with the experience.

    Experience is played before each batch of updates, so most updates see no other forward. Steps
    that are themselves too large blow values up as well.
    """
    plays = view.ledger("eval_forwards") > 0
    is_value = view.objective.is_policy and view.objective.is_squared
    if not is_value or not plays.mean() > PLAYED:
        return False
    return float(quiet(np.nanmedian, view.step_size[:6])) < HUGE_STEP
