# SPDX-License-Identifier: MIT
"""Missing gradient clipping: a rare, huge gradient of a recurrent or deep model wrecks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import median_mad
from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import SETBACK, lasting_jump, setback
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.run import LayerInfo

JUMP = 20.0
"""Gradient norm over its median: orders above, as causes.toml has it."""
DEEP = 10
"""Weight layers from which a model is deep."""
CALM = 12
"""Steps of ordinary gradients before the jump: else the lr was wrong from the start."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a gradient that is huge from the start, or orders above its past."""
    curve = view.curve
    lapse = _lapse(view)
    is_clipped = view.is_clipped and lapse is None
    if not curve or is_clipped or curve.is_signed or len(view.run.models) > 1:
        return None
    repeated = [x for x in view.flow.weighted if x.order >= 0 and _repeats(view, x.path)]
    if not (view.flow.recurrent or repeated or len(view.flow.weighted) >= DEEP):
        return None
    at_once = _at_once(view, [*view.flow.recurrent, *repeated]) if lapse is None else None
    return at_once or _in_mid_run(view, lapse)


def _in_mid_run(view: CaseView, lapse: int | None) -> Assessment | None:
    """Blame a gradient orders above its past, after which the loss is worse for good."""
    row, curve = _jump(view), view.curve
    if row is None or (lapse is not None and row < lapse):
        return None
    index = int(np.searchsorted(curve.steps, view.label(row)))
    stays = max(lasting_jump(view, index), lasting_jump(view, index + 1))
    hurts = stays > 1.5 and max(setback(view, index), setback(view, index + 1)) > SETBACK
    if not (hurts or view.is_broken or curve.is_diverged):
        return None
    if curve.end < curve.level(index - 10, index) and not view.is_broken:
        return None
    total = _totals(view)
    usual = float(quiet(np.nanmedian, total[max(0, row - 50) : row]))
    layer = _layer(view, row)
    step = view.label(row)
    lapsed = lapse is not None and step - view.label(lapse) <= SOON
    since = f" since step {view.label(lapse)}" if lapse is not None and lapsed else ""
    return Assessment(
        cause="missing_gradient_clipping",
        failure=FailureType.EXPLODING_GRADIENTS,
        confidence=0.9 if lapsed else 0.75 if view.flow.recurrent else 0.55,
        description=(
            f"Gradient explosion originated in {named(layer)} at step {step}: the gradient norm "
            f"jumped from {figure(usual)} to {figure(float(total[row]))}, no clipping held it"
            f"{since}, and the loss is worse from then on."
        ),
        layer=layer,
        onset=step,
        onset_range=(max(step - 1, 0), step),
        evidence=view.events(types=["gradient_health_transition", "optimizer_instability"]),
        chain=(
            link(layer, step, "the gradient grows along the recurrence (or depth) and explodes"),
            link(None, step, "one unclipped step throws the weights off"),
        ),
        explains=frozenset({"lr_too_high", "unknown", "dying_relu", *(UNHELD if lapsed else ())}),
        is_direct=lapsed,
    )


UNHELD = ("target_outlier", "stale_second_moment")
"""What a gradient that clipping had always held looks like: its loss leaps out of nothing, and the
second moment knows clipped ones only."""
MOSTLY = 0.9
"""Share of the steps before on which a loop must have clipped for it to have been meant."""
ENOUGH = 20
"""Steps that show that it clipped."""
SOON = 50
"""Steps after clipping ended within which an explosion is its doing: it held the ones before."""


THROWN = 0.5
"""Update / weight RMS of a first step that throws the weights about."""
HELD = 0.02
"""The same lr with a gradient of norm 1, to which recurrent models are clipped (Pascanu et al.
2013), over the norm of all weights: it would have moved them by hardly more than Adam does."""


def _at_once(view: CaseView, recurrent: list[LayerInfo]) -> Assessment | None:
    """Blame the first steps of a recurrence whose gradient is huge from the start.

    The lr is an everyday one: the same steps, clipped, would have been small ones.
    """
    if not recurrent or view.is_adaptive or not len(view.steps):
        return None
    broke = view.broken_step
    has_fled = broke is not None and broke <= view.label(0) + CALM
    until = min(CALM, len(view.steps)) if broke is None else int(view.row_at(broke)) + 1
    moved = view.step_size[:until]
    total = float(_totals(view)[0])
    size = np.array([p.initial_rms * np.sqrt(np.prod(p.shape)) for p in view.run.parameters])
    clipped = float(view.lr[0]) / max(float(np.linalg.norm(size)), 1e-12)
    if not has_fled or not total > 1 or clipped > HELD:
        return None
    if not float(quiet(np.nanmax, moved)) > THROWN or _shrinks(view):
        return None
    layer, step = recurrent[0].path, view.label(0)
    return Assessment(
        cause="missing_gradient_clipping",
        failure=FailureType.EXPLODING_GRADIENTS,
        confidence=0.75,
        description=(
            f"Gradient explosion originated in {named(layer)} at step {step}: with an everyday lr "
            f"({figure(float(view.lr[0]))}) the gradient of norm {figure(total)} moved the weights "
            f"by {100 * float(quiet(np.nanmax, moved)):.2g} % of their size, and no clipping "
            "held it."
        ),
        layer=layer,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["gradient_health_transition", "optimizer_instability"]),
        chain=(
            link(layer, step, "the gradient grows along the recurrence"),
            link(None, step, "the first unclipped steps throw the weights off"),
        ),
        explains=frozenset({"lr_too_high", "unknown", "dying_relu"}),
    )


def _shrinks(view: CaseView) -> bool:
    """Whether the gradient is known not to grow back through time."""
    notes = view.observations.get("recurrent_gradient", [])
    return any(note.figures.get("early_late_ratio", 1.0) < 1 for note in notes[:1])


def _lapse(view: CaseView) -> int | None:
    """Return the row from which on a loop that had clipped all along never clips any more."""
    clips = view.ledger("clips")
    rows = np.flatnonzero(clips > 0)
    if not len(rows) or rows[-1] + 1 >= len(clips):
        return None
    before = clips[: rows[-1] + 1] > 0
    is_meant = len(before) >= ENOUGH and float(before.mean()) > MOSTLY
    return int(rows[-1]) + 1 if is_meant else None


def _repeats(view: CaseView, path: str) -> bool:
    """Whether a layer runs several times within a step: a cell unrolled by hand."""
    calls = view.activation(ActivationStat.CALLS)[:, view.flow.row[path]]
    return len(calls) > 0 and float(quiet(np.nanmedian, calls)) >= 4


def _candidates(logs: NDArray[np.float64]) -> list[int]:
    """Return rows far above the lowest of their past: only these can be far above its median."""
    padded = np.concatenate([np.full(50, np.inf), np.where(np.isfinite(logs), logs, np.inf)])
    lowest = np.lib.stride_tricks.sliding_window_view(padded, 50)[: len(logs)].min(axis=1)
    high = np.isfinite(logs) & (logs - lowest > np.log(JUMP))
    return [int(row) for row in np.flatnonzero(high) if row >= CALM]


def _totals(view: CaseView) -> NDArray[np.float64]:
    """Return the total gradient norm, `[T]`; on thinned steps what the loop's clipping measured."""
    total = view.gradient_total
    return np.where(np.isnan(total), view.ledger("clip_total_norm"), total)


def _jump(view: CaseView) -> int | None:
    total = _totals(view)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(total)
    for row in _candidates(logs):
        past = logs[max(0, row - 50) : row]
        past = past[np.isfinite(past)]
        if len(past) < CALM // 2 or not np.isfinite(total[row]):
            continue
        middle, scale = (float(x) for x in median_mad(past))
        z = (logs[row] - middle) / max(scale, 0.3)
        if z > 4 and logs[row] - middle > np.log(JUMP):
            return row
    return None


def _layer(view: CaseView, row: int) -> str | None:
    """The recurrent layer, else the layer whose gradient grew most."""
    if view.flow.recurrent:
        return view.flow.recurrent[0].path
    grown: dict[str, float] = {}
    for layer in view.flow.weighted:
        rms = view.layer_gradient(layer.path)
        usual = quiet(np.nanmedian, rms[max(0, row - 50) : row])
        if np.isfinite(usual) and usual > 0 and np.isfinite(rms[row]):
            grown[layer.path] = float(rms[row] / usual)
    return max(grown, key=lambda p: grown[p]) if grown else None
