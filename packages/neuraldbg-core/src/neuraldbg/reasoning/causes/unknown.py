# SPDX-License-Identifier: MIT
"""Unknown: something clearly failed and no cause of the vocabulary fits. Say what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.causes import UNKNOWN
from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import EXTERNAL, departure_row, replaced_row, runs_away
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import ActivationStat, GradState, ParameterStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Name symptom, first layer and step of a run that broke or diverged."""
    curve = view.curve
    if view.is_broken and view.broken_step is not None:
        step, layer = view.broken_step, _first_broken(view)
        return Assessment(
            cause=UNKNOWN,
            failure=FailureType.NUMERICAL_ERROR,
            confidence=0.3,
            description=(
                f"Values stopped being finite at step {step}, first seen in {named(layer)}; no "
                "known cause fits the evidence."
            ),
            layer=layer,
            onset=step,
            onset_range=(max(step - 1, 0), step),
            evidence=view.events(types=["numerical_error", "gradient_health_transition"]),
            chain=(link(layer, step, "the first values that are not finite"),),
        )
    if len(view.run.models) > 1 or not curve or curve.is_signed:
        return None
    if view.is_failing and (moved := _moved(view)) is not None:
        return moved
    if not curve.is_diverged:
        return _vanished(view)
    if not runs_away(view):
        return None
    row = departure_row(view)
    step = view.label(row) if row is not None else view.label(0)
    layer = _first_grown(view, row) if row is not None else None
    failure = (
        FailureType.OPTIMIZER_INSTABILITY if layer is None else FailureType.EXPLODING_GRADIENTS
    )
    where = "" if layer is None else f"Gradient explosion originated in {named(layer)}: "
    return Assessment(
        cause=UNKNOWN,
        failure=failure,
        layer=layer,
        confidence=0.25,
        description=(
            f"{where}the loss diverged from step {step}, from {figure(curve.best)} to "
            f"{figure(curve.end)}; no known cause fits the evidence."
        ),
        onset=step,
        onset_range=(max(step - 1, 0), step),
        evidence=view.events(types=["optimizer_instability", "gradient_health_transition"]),
        chain=(link(layer, step, "the loss leaves its level for good"),),
    )


LEAP = 5.0
"""Loss after it over the largest of the ten before."""


def _moved(view: CaseView) -> Assessment | None:
    """Name the step before which weights moved although no optimizer moved them that far."""
    curve, values = view.curve, view.curve.values
    for index in np.flatnonzero(values[1:] > LEAP * values[:-1]) + 1:
        before, after = values[max(0, index - 10) : index], float(values[index])
        if not after > LEAP * float(np.max(before)):
            continue
        step = int(curve.steps[index])
        row = view.row_at(step)
        if replaced_row(view, row, row) is None:
            continue
        return Assessment(
            cause=UNKNOWN,
            failure=FailureType.OPTIMIZER_INSTABILITY,
            confidence=0.8,
            description=(
                f"Between step {step - 1} and step {step} the weights moved at least "
                f"{EXTERNAL:.0f} times further than the optimizer moved them, and the loss went "
                f"from {figure(float(before[-1]))} to {figure(after)}: something else "
                "wrote them. No cause of the vocabulary fits."
            ),
            onset=step,
            onset_range=(step - 1, step),
            evidence=view.events(types=["optimizer_instability", "gradient_health_transition"]),
            chain=(
                link(None, step, "the weights are not those that the last step left"),
                link(None, step, "the loss leaps with them"),
            ),
            explains=frozenset({"lr_too_high", "target_outlier", "outlier_batch"}),
            is_direct=True,
        )
    return None


GROWN = 10.0
"""Gradient RMS around the departure over its median before."""


def _first_grown(view: CaseView, row: int) -> str | None:
    """Return the first layer of the data flow whose gradient grew with (or before) the loss."""
    for layer in view.flow.weighted:
        rms = view.layer_gradient(layer.path)
        usual = quiet(np.nanmedian, rms[max(0, row - 60) : max(1, row - 5)])
        around = quiet(np.nanmax, rms[max(0, row - 5) : row + 10])
        if float(around) > GROWN * float(usual) > 0:
            return layer.path
    return None


def _first_broken(view: CaseView) -> str | None:
    bad = view.activation(ActivationStat.NONFINITE) > 0
    rows = np.flatnonzero(bad.any(axis=1))
    if not len(rows):
        return None
    columns = np.flatnonzero(bad[rows[0]])
    layers = [view.run.layers[int(c)] for c in columns]
    return min(layers, key=lambda x: view.flow.place.get(x.path, 0)).path


GONE = 1e-6
"""Late gradient RMS of a layer over its early one."""
KEPT = 1e-3
"""And of the strongest layer: where all fade, the run is done."""
DONE = 0.98
"""Progress from which small gradients mean that nothing is left to learn."""


def _present(view: CaseView, path: str) -> NDArray[np.float64]:
    """Return the gradient RMS of a layer, `[T]`, NaN where there was none at all.

    A part that was frozen or cut off within the run has none: that is no gradient that faded.
    """
    state = view.parameter(ParameterStat.GRAD_STATE)[:, view.flow.matrices.get(path, [])]
    absent = (state == GradState.NONE).all(axis=1)
    return np.where(absent, np.nan, view.layer_gradient(path))


def _vanished(view: CaseView) -> Assessment | None:
    """Name the first layer whose gradient was sound and went, while later layers kept theirs."""
    weighted = [x.path for x in view.flow.weighted]
    if len(weighted) < 2 or len(view.steps) < 60 or view.curve.progress > DONE:
        return None
    rms = {path: _present(view, path) for path in weighted}
    left = {p: float(view.late(g)) / max(float(view.early(g, 20)), 1e-30) for p, g in rms.items()}
    layer = weighted[0]
    late = float(view.late(rms[layer]))
    small = late < view.trace.settings.threshold_vanishing
    after = [left[p] for p in weighted[1:] if np.isfinite(left[p])]
    if not small or not left[layer] < GONE or not after or not after[-1] > KEPT:
        return None
    usual = float(quiet(np.nanmedian, rms[layer][:20]))
    lower = np.flatnonzero(rms[layer] >= 0.3 * usual)
    step = view.label(int(lower[-1]) + 1)
    return Assessment(
        cause=UNKNOWN,
        failure=FailureType.VANISHING_GRADIENTS,
        layer=layer,
        confidence=0.25,
        description=(
            f"Gradient vanishing originated in {named(layer)} at step {step}: its gradient fell "
            f"to {figure(left[layer])} of what it was while that of {weighted[-1]!r} kept "
            f"{figure(after[-1])}; no known cause fits the evidence."
        ),
        onset=step,
        onset_range=(max(step - 5, 0), step),
        evidence=view.events(types=["gradient_health_transition"], state="vanishing"),
        chain=(link(layer, step, "nearly no gradient reaches this layer any more"),),
    )
