# SPDX-License-Identifier: MIT
"""Mode collapse: a generator's outputs lose their variety while its noise keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.adversary import roles
from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import ActivationStat, InputStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.run import LayerInfo

    Array = NDArray[np.float64]

SPREAD = 0.06
FALL = 3.0
ALIKE = 0.95
POOR = 0.35
"""Spread of the generated samples over that of the real ones the discriminator sees. Heuristic:
healthy generators reach 0.7 to 1.1; one of several modes has a fifth to a third."""
MORE = 1.8
"""Spread of what the discriminator is shown over the generator's from which real samples were
among it. Heuristic: well above the sampling noise of 32 rows."""
SEEN = 2
"""Times that real samples must have been seen to be more diverse."""
ENOUGH = 8
"""Times that the generator's spread must have been measured."""
LASTING = 0.9
"""Share of the measured rows below a level from which it is held for good."""
AT_START = 0.1
"""Share of the run in which a generator still finds its scale."""


def assess(view: CaseView) -> Assessment | None:
    """Look at the spread between generated samples: against the past, and against real ones."""
    pair = roles(view)
    if pair is None:
        return None
    outputs = [x for x in view.flow.executed if x.model == pair[0]]
    if not outputs:
        return None
    layer = outputs[-1]
    spread = view.activation(ActivationStat.SPREAD)[:, view.flow.row[layer.path]]
    shown = _shown(view, pair[1])
    if shown is None:
        return _against_past(view, layer, spread)
    begun = view.steps >= view.steps[0] + AT_START * (view.steps[-1] - view.steps[0])
    real, made = _real(spread[begun], shown[begun]), spread[begun & np.isfinite(spread)]
    if (np.median(real) if len(real) >= SEEN else float(view.late(shown))) < 2 * SPREAD:
        return None  # real samples are as alike: nothing that a generator could miss
    found = _against_past(view, layer, spread)
    return found or _against_real(view, layer, spread, made, real, pair[1])


def _shown(view: CaseView, judge: str) -> Array | None:
    """Return the spread of what the discriminator is shown, `[T]`: of the most diverse argument."""
    columns = [i for i, x in enumerate(view.run.inputs) if x.model == judge and "float" in x.dtype]
    if not columns or len(view.steps) < 2:
        return None
    return np.asarray(quiet(np.nanmax, view.inputs(InputStat.SAMPLE_SPREAD)[:, columns], axis=1))


def _real(spread: Array, shown: Array) -> Array:
    """Return how diverse real samples are, of the rows on which they were seen to be shown.

    On a step on which the discriminator is shown both, the more diverse of the two is kept: real
    ones show where that is clearly more than the generator's own. Where they never do, the
    generator is as diverse as they are.
    """
    with np.errstate(invalid="ignore"):
        return shown[shown > MORE * spread]


def _against_past(view: CaseView, layer: LayerInfo, spread: Array) -> Assessment | None:
    last = float(view.late(spread))
    most = float(np.nanmax(spread)) if np.isfinite(spread).any() else float("nan")
    alike = float(view.late(view.activation(ActivationStat.COSINE)[:, view.flow.row[layer.path]]))
    is_one = last < SPREAD and last * FALL < most
    is_one |= alike > ALIKE and last < 3 * SPREAD and last * (FALL + 1) < most
    if not is_one:
        return None
    row = _onset(spread, max(2.0 * SPREAD, 2.0 * last))
    what = f"differ by {figure(last)} of their size (at most {figure(most)} before)"
    return _found(view, layer, row, what, 0.8)


def _against_real(
    view: CaseView, layer: LayerInfo, spread: Array, made: Array, real: Array, judge: str
) -> Assessment | None:
    """Compare the spread of generated samples, `made`, with that of `real` ones."""
    if len(real) < SEEN or len(made) < ENOUGH:
        return None
    data = float(np.median(real))
    late = made[-max(3, len(made) // 3) :]
    if not (max(float(np.median(made)), float(np.quantile(late, LASTING))) < POOR * data):
        return None
    what = (
        f"differ by {figure(float(np.median(late)))} of their size, the real ones that {judge!r} "
        f"is shown by {figure(data)}"
    )
    return _found(view, layer, _onset(spread, POOR * data), what, 0.7)


def _onset(spread: Array, level: float) -> int:
    """Return the first measured row from which on nine in ten rows are below `level`."""
    rows = np.flatnonzero(np.isfinite(spread))
    low = spread[rows] < level
    share = np.cumsum(low[::-1])[::-1] / np.arange(len(low), 0, -1)
    lasting = rows[low & (share >= LASTING)]
    return int(lasting[0] if len(lasting) else rows[0])


def _found(view: CaseView, layer: LayerInfo, row: int, what: str, confidence: float) -> Assessment:
    step = view.label(row)
    return Assessment(
        cause="mode_collapse",
        failure=FailureType.REPRESENTATION_COLLAPSE,
        confidence=confidence,
        description=(
            f"Mode collapse in {named(layer.path)} by step {step}: generated samples {what}, "
            "whatever the noise."
        ),
        layer=layer.path,
        onset=step,
        onset_range=(view.label(0), step),
        evidence=view.events(types=["representation_collapse"]),
        chain=(link(layer.path, step, "all noise vectors give (nearly) one sample"),),
        explains=frozenset({"unknown", "discriminator_overpowers"}),
    )
