# SPDX-License-Identifier: MIT
"""The scale of a normalisation layer went to zero: by weight decay, or by something unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuraldbg.causes import UNKNOWN
from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.facts import OptimizerStat, ParameterStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

GONE = 1e-3
"""Last over largest RMS of the scale, as for the detector."""
FELL = 0.5
"""Share of its largest value from which the scale counts as falling."""
FEW = 5
"""Steps on which it must have been measured."""
OWN = 0.5
"""Share of the fall, in logs, that decay alone must account for. The rest is the gradient's, which
pushes a scale about as long as there is any."""


class Lost(NamedTuple):
    """One scale that was there and is gone for good."""

    row: int
    """Row of the parameter."""
    fell: int
    """Last row of the trace on which it was above `FELL`: where it began to fall, or before."""
    gone: int
    """First row on which it was below `GONE`, for good."""


def assess(view: CaseView) -> Assessment | None:
    """Look for scales that ended at zero in a run that did not learn, or lost what it knew."""
    curve = view.curve
    if not curve or curve.learned or view.is_broken or len(view.run.models) > 1:
        return None
    lost = _lost(view)
    if not lost:
        return None
    first = min(lost, key=lambda one: (one.gone, _place(view, one.row)))
    is_decay = _is_decay(view, first)
    info = view.run.parameters[first.row]
    step = view.label(0) if is_decay else view.label(first.gone)
    gone = view.label(first.gone)
    how = "weight decay shrank it" if is_decay else "no decay of the optimizer does that"
    many = f" ({len(lost)} such layers)" if len(lost) > 1 else ""
    return Assessment(
        cause="weight_decay_too_high" if is_decay else UNKNOWN,
        failure=FailureType.VANISHING_GRADIENTS,
        confidence=0.75,
        description=(
            f"Gradient vanishing originated in {named(info.layer)} at step {step}: its scale "
            f"{info.name!r} went to {figure(_last(view, first.row))} of what it was by step "
            f"{gone}{many}, so nothing of what enters passes; {how}."
        ),
        layer=info.layer,
        onset=step,
        onset_range=(min(step, view.label(first.fell)), gone),
        evidence=view.events(types=["activation_regime_shift"], layers=[info.layer]),
        chain=(
            link(info.layer, step, f"the scale {info.name!r} goes to zero"),
            link(info.layer, gone, "outputs are the bias alone, and no gradient passes back"),
        ),
        explains=frozenset({"dying_relu", "unknown", "labels_unrelated_to_inputs", "lr_too_low"}),
        is_direct=True,
    )


def _series(view: CaseView, row: int) -> NDArray[np.float64]:
    """Return a scale over the largest that it had been so far, `[T]`."""
    values = view.parameter(ParameterStat.WEIGHT_RMS)[:, row]
    most = np.fmax.accumulate(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(most > 0, values / most, np.nan))


def _last(view: CaseView, row: int) -> float:
    series = _series(view, row)
    return float(series[np.isfinite(series)][-1])


def _lost(view: CaseView) -> list[Lost]:
    found = []
    for row in view.run.scale_rows():
        series = _series(view, row)
        rows = np.flatnonzero(np.isfinite(series))
        if len(rows) < FEW or not series[rows[-1]] < GONE:
            continue
        high, seen = rows[series[rows] >= FELL], rows[series[rows] >= GONE]
        found.append(Lost(row, int(high[-1]), int(rows[rows > seen[-1]][0])))
    return found


def _place(view: CaseView, row: int) -> int:
    return view.flow.place.get(view.run.parameters[row].layer, 1 << 30)


def _is_decay(view: CaseView, lost: Lost) -> bool:
    """Whether decay shrinks that much in the steps that the fall took.

    A step multiplies by 1 - lr * decay; momentum repeats it. Adam scales coupled decay up to whole
    steps once the gradient is gone: there any decay can do it.
    """
    decay = view.optimizer(OptimizerStat.WEIGHT_DECAY)
    options = [float(o.options.get("weight_decay") or 0.0) for o in view.run.optimizers]
    strength = max([float(np.nanmax(decay, initial=0.0)), *options])
    if view.is_adaptive and not any("adamw" in kind for kind in view.optimizer_kinds):
        return strength > 0
    momentum = view.optimizer(OptimizerStat.MOMENTUM) if not view.is_adaptive else np.zeros(1)
    kept = max(1 - float(np.nanmax(momentum, initial=0.0)), 0.01)
    took = view.label(lost.gone) - view.label(lost.fell)
    shrunk = took * float(np.nanmax(view.lr, initial=0.0)) * strength / kept
    return shrunk > OWN * float(np.log(1 / GONE))
