# SPDX-License-Identifier: MIT
"""Effective sharpness, from what is recorded anyway: how gradients change along the update."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.schema.facts import ParameterStat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView


def lr_times_sharpness(view: CaseView) -> NDArray[np.float64]:
    """Return lr x curvature along the last update, `[T]`; NaN where it cannot be told.

    After a plain gradient step, u = -lr g, the curvature along u is (g - g') . g / (lr g . g), so
    lr times it is 1 - cos(g, g') |g'| / |g|: above 2 the step overshoots by more than it gained,
    which is where gradient descent diverges (Cohen et al. 2021, section 2). The noise of batches
    alone pulls it towards 1. Cosines are of the sampled gradients, norms exact. With momentum or an
    adaptive optimizer the update is another direction, along which curvature stays far below the
    stable limit whether the run learns or not (measured in the test of this file): NaN.
    """
    rows = len(view.steps)
    plain = {"sgd"}
    momentum = [o.options.get("momentum") or 0.0 for o in view.run.optimizers]
    is_plain = view.optimizer_kinds <= plain and not any(float(m) for m in momentum)
    columns = view.matrix_rows
    if not is_plain or rows < 2 or not len(columns):
        return np.full(rows, np.nan)
    norm = view.parameter(ParameterStat.GRAD_NORM)[:, columns]
    cosine = view.parameter(ParameterStat.GRAD_COSINE)[:, columns]
    before, now = norm[:-1], norm[1:]
    known = np.isfinite(before) & np.isfinite(now) & np.isfinite(cosine[1:])
    with np.errstate(invalid="ignore", divide="ignore"):
        along = np.where(known, cosine[1:] * before * now, 0.0).sum(axis=1)
        size = np.where(known, before**2, 0.0).sum(axis=1)
        sharp = 1.0 - along / size
    sharp[(size == 0) | (np.diff(view.steps) != 1)] = np.nan
    return np.concatenate([[np.nan], sharp])
