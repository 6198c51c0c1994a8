# SPDX-License-Identifier: MIT
"""Symptoms that causes share: when the loss left, who died, how gradients fall with depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import theil_sen
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import ActivationStat, GradState, ParameterStat
from neuraldbg.schema.run import LayerInfo, LayerRole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

    Array = NDArray[np.float64]

RECTIFIERS = frozenset({"relu", "relu6", "hardtanh", "threshold"})
BOUNDED = frozenset({"sigmoid", "tanh", "softsign", "hardsigmoid", "hardtanh"})


def departure_row(view: CaseView) -> int | None:
    """Return the row on which the loss left for good: the start of its last big rise.

    The first step whose loss is clearly above the lowest level before it and after which the loss
    never returns to that level. None where it never left.
    """
    curve = view.curve
    if not curve:
        return None
    values = np.where(np.isfinite(curve.values), curve.values, np.inf)
    low = np.minimum.accumulate(values)
    margin = np.maximum(6 * curve.noise, 0.5 * np.abs(low))
    index = None
    for i in range(len(values) - 1, 0, -1):
        if values[i] <= low[i - 1] + margin[i - 1]:
            break
        index = i
    if index is None:
        return None
    return view.row_at(int(curve.steps[index]))


def lasting_jump(view: CaseView, index: int, span: int = 10) -> float:
    """Return the level after a jump at curve index over the level before it (ratio, 1: none)."""
    curve = view.curve
    before = curve.level(index - span, index)
    after = curve.level(index + 2, index + 2 + span)
    if not np.isfinite(before) or before == 0:
        return 1.0
    if not np.isfinite(after):
        return float("inf") if index + 2 < len(curve) else 1.0
    return float(after / abs(before)) if not curve.is_signed else 1.0


def setback(view: CaseView, index: int, span: int = 10) -> float:
    """Return how much a jump at curve index cost: the lasting rise, as a share of the origin.

    Near convergence a loss may double and double again without anything being lost.
    """
    curve = view.curve
    rise = curve.level(index + 2, index + 2 + span) - curve.level(index - span, index)
    if not np.isfinite(rise):
        return 1.0 if view.is_broken else 0.0
    return float(rise / max(abs(curve.origin), 1e-12))


SETBACK = 0.1
"""Share of the origin from which a setback is one: a tenth of all that there was to learn."""


@dataclass(frozen=True)
class Dead:
    """A rectifying layer (nearly) all of whose units are silent."""

    layer: LayerInfo
    row: int
    """First row on which (nearly) every output was zero, for good."""
    share: float
    """Share of silent units at the end."""
    is_from_start: bool


def dead_layers(view: CaseView, share: float = 0.95) -> list[Dead]:
    """Return rectifying layers that ended dead, in the order of the data flow."""
    silent = view.activation(ActivationStat.SILENT_SHARE)
    zeros = view.activation(ActivationStat.ZERO_SHARE)
    highest = view.activation(ActivationStat.MAX)
    found: list[Dead] = []
    if not silent.size:
        return found
    ever = quiet(np.nanmax, silent, axis=0) >= share
    for layer in view.flow.executed:
        row = view.flow.row[layer.path]
        if layer.activation not in RECTIFIERS or not ever[row]:
            continue
        ended = float(view.late(silent[:, row]))
        if not ended >= share:
            continue
        if _is_before(layer):
            top = highest[:, row]
            shut = np.where(np.isnan(top), np.nan, (top <= 0).astype(float))
        else:
            shut = zeros[:, row]
        first = _first_for_good(shut, 0.97 * share)
        if first is None:
            first = _first_for_good(silent[:, row], share)
        if first is None:
            continue
        first = _brought_down(shut, highest[:, row], first, 0.97 * share)
        found.append(Dead(layer, first, ended, first <= 1))
    return found


def _brought_down(shut: Array, highest: Array, first: int, threshold: float) -> int:
    """Return the row on which a layer died, where shares were last measured some rows before.

    The largest output is exact on every step: it falls on the step on which the units die.
    """
    alive = np.flatnonzero(~np.isnan(shut[:first]) & ~(shut[:first] >= threshold))
    last = int(alive[-1]) if len(alive) else first
    usual = float(quiet(np.nanmedian, highest[max(0, last - 20) : last + 1]))
    for row in range(last + 1, first):
        if highest[row] < 0.1 * usual:
            return row
    return first


def _is_before(layer: LayerInfo) -> bool:
    """Whether a layer's figures are those before its activation function (a Linear before relu)."""
    return layer.role is not LayerRole.ACTIVATION


def _first_for_good(values: Array, threshold: float) -> int | None:
    """Return the first row from which on 90 % of the measured values exceed the threshold."""
    above = np.where(np.isnan(values), np.nan, values >= threshold)
    if not np.nansum(above):
        return None
    suffix = np.nancumsum(above[::-1])[::-1]
    count = np.cumsum(~np.isnan(above)[::-1])[::-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        lasting = (suffix / count >= 0.9) & (above == 1)
    rows = np.flatnonzero(lasting)
    return int(rows[0]) if len(rows) else None


@dataclass(frozen=True)
class Depth:
    """How the gradient changes from the output back to the input, early in the run."""

    layers: tuple[str, ...]
    rms: tuple[float, ...]
    """Gradient RMS per weighted layer, in the order of the data flow."""
    slope: float
    """Log of the gradient RMS per layer towards the output; positive: it vanishes backward."""
    ratio: float
    """First layer / strongest of the last three."""


def gradient_depth(view: CaseView, *, late: bool = False) -> Depth | None:
    """Return the gradient over depth along the executed weighted layers; None below 3 layers."""
    layers = [x for x in view.flow.weighted if x.role is not LayerRole.EMBEDDING]
    if len(layers) < 3:
        return None
    pick = view.late if late else view.early
    rms = np.array([float(pick(view.layer_gradient(x.path))) for x in layers])
    usable = np.isfinite(rms)
    if usable.sum() < 3:
        return None
    floor = max(float(np.nanmax(rms)) * 1e-12, 1e-30)
    logs = np.log(np.maximum(rms, floor))
    fitted = usable & (rms > floor)  # what is below is 0: how far below, nobody can tell
    fitted = fitted if fitted.sum() >= 3 else usable
    slope, _ = theil_sen(np.arange(len(rms))[fitted], logs[fitted])
    top = float(np.nanmax(rms[-3:]))
    first = float(rms[usable][0])
    return Depth(
        tuple(x.path for x in layers),
        tuple(float(v) for v in rms),
        slope,
        first / top if top > 0 else 1.0,
    )


def output_rms(view: CaseView) -> Array:
    """Return the RMS of the model's output layers, the largest of them, `[T]`."""
    rows = [view.flow.row[layer.path] for layer in view.flow.outputs]
    rms = view.activation(ActivationStat.RMS)
    return quiet(np.nanmax, rms[:, rows], axis=1) if rows else np.full(len(rms), np.nan)


def flat_share(view: CaseView, path: str) -> Array:
    """Return the flat share of a layer, `[T]`."""
    return view.activation(ActivationStat.FLAT_SHARE)[:, view.flow.row[path]]


def weight_growth(view: CaseView) -> float:
    """Return the median ratio of the last to the initial weight RMS over matrices."""
    weights = view.parameter(ParameterStat.WEIGHT_RMS)[:, view.matrix_rows]
    if not weights.size:
        return 1.0
    initial = np.array([view.run.parameters[i].initial_rms for i in view.matrix_rows])
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(initial > 0, view.late(weights) / initial, np.nan)
    ratio = ratio[np.isfinite(ratio)]
    return float(np.median(ratio)) if len(ratio) else 1.0


@dataclass(frozen=True)
class Scale:
    """The initial scale of a weight matrix against usual initialisations of its shape."""

    layer: str
    rms: float
    small: float
    """RMS / the smallest usual one (torch's default: 1 / sqrt(3 fan_in))."""
    large: float
    """RMS / the largest usual one (He: sqrt(2 / fan_in))."""


def initial_scales(view: CaseView) -> list[Scale]:
    """Return the initial scale of every linear and convolution matrix, in the data flow's order.

    An embedding counts where its matrix is tied to another layer: as that layer's matrix.
    """
    found = []
    for layer in view.flow.executed:
        tied_or_plain = layer.role in {LayerRole.LINEAR, LayerRole.CONVOLUTION, LayerRole.EMBEDDING}
        if not tied_or_plain:
            continue
        for row in view.flow.matrices.get(layer.path, []):
            info = view.run.parameters[row]
            if layer.role is LayerRole.EMBEDDING and not info.shared_with:
                continue
            fan_in = max(int(np.prod(info.shape[1:])), 1)
            if info.initial_rms <= 0:
                continue
            found.append(
                Scale(
                    layer.path,
                    info.initial_rms,
                    info.initial_rms * np.sqrt(3 * fan_in),
                    info.initial_rms / np.sqrt(2 / fan_in),
                )
            )
    return found


def chance_loss(view: CaseView) -> float | None:
    """Return the loss at chance where the main loss is a cross-entropy over known classes."""
    chance = view.objective.ignorant
    return chance if view.objective.is_classification and np.isfinite(chance) else None


FAR = 30.0
"""Last loss over the first. Losses of agents grow tenfold when they find rewards."""
BEYOND = 1e4
"""Times the first loss from which a new level is a divergence too."""


def runs_away(view: CaseView) -> bool:
    """Whether the loss diverged far, and still grew in the last quarter: it found no new level."""
    curve = view.curve
    if not curve.is_diverged or curve.end < FAR * max(curve.start, 1e-6):
        return False
    if curve.is_broken or curve.end > BEYOND * max(curve.start, 1e-6):
        return True
    count = len(curve)
    return curve.level(count - count // 8, count) > 1.3 * curve.level(count // 2, 3 * count // 4)


CHASES, CHASED = 0.8, 10
"""Share of steps, and their number, on which the model must also run without gradients. Heuristic:
evaluations come now and then, a target is computed on each step."""


def is_own_target(view: CaseView) -> bool:
    """Whether the model also runs without gradients on (nearly) every training step.

    Bootstrapped targets, self-distillation and teacher passes of the trained network itself look
    like this.
    """
    return own_target_since(view) == 0


def own_target_since(view: CaseView) -> int | None:
    """Return the row from which on `is_own_target` holds, 0 where all along; None: it does not.

    On thinned steps nobody counts forwards.
    """
    rows = np.flatnonzero(view.trace.facts.sampled)
    evals = view.ledger("eval_forwards")[rows] > 0
    if len(evals) > CHASED and float(evals.mean()) > CHASES:
        return 0
    share = np.cumsum(evals[::-1])[::-1] / np.arange(len(evals), 0, -1)
    lasting = np.flatnonzero(evals & (share > CHASES))
    if not len(lasting) or len(evals) - lasting[0] <= CHASED:
        return None
    place = int(lasting[0])
    if place and float(evals[:place].mean()) >= 1 - CHASES:
        return None
    before = int(rows[place - 1]) if place else -1
    heard = np.flatnonzero(view.ledger("eval_forwards")[before + 1 :] > 0)  # on some, by chance
    return before + 1 + int(heard[0])


EXTERNAL = 10.0
"""Move of a weight matrix between two steps over what the optimizer's step measured."""
REPLACED = 0.2
"""And this share of its size: what is left are loads and resets, not clamps and averages."""


def replaced_row(view: CaseView, first: int, last: int) -> int | None:
    """Return a row in [first, last] before which weights moved as no optimizer step explains.

    The RMS of a sum is at most the sum of the RMS, and both are taken of the same sample: a larger
    move between two steps was made by something else (a checkpoint, a reset, noise). Where taps
    were thinned out, the steps between two measurements are taken as long as the longest measured.
    """
    weight = view.parameter(ParameterStat.WEIGHT_RMS)
    update = view.parameter(ParameterStat.UPDATE_RMS)
    known = np.flatnonzero(~np.isnan(weight).all(axis=1)) if weight.size else np.array([], int)
    before, after = known[:-1], known[1:]
    gap = view.steps[after] - view.steps[before]
    near = (after >= first) & (before < last) & (gap <= MOST_GAP)
    before, after, gap = before[near], after[near], gap[near][:, None]
    moved = np.abs(weight[after] - weight[before])
    longest = np.fmax(update[before], np.where(gap > 1, update[after], update[before]))
    with np.errstate(invalid="ignore"):
        own = EXTERNAL * gap * longest + REPLACED * weight[before] + 1e-6
        rows = before[(moved > own).any(axis=1)]
    return int(min(max(int(rows[0]) + 1, first), last)) if len(rows) else None


MOST_GAP = 20
"""Steps between two measurements over which a move can still be judged."""


@dataclass(frozen=True)
class Leap:
    """A learning rate that rose above everything before, and what the loss did at once."""

    row: int
    before: float
    after: float
    ratio: float
    """Highest loss of the next steps over the level before; inf where it was not finite."""


LEAP = 3.0
"""Rise of the lr over its highest value so far. Restarts return to what was, warmups go in small
steps."""
SOON = 12
"""Steps within which the loss must answer a rise of the lr."""


def lr_leap(view: CaseView) -> Leap | None:
    """Return the first rise of the lr above all before that the loss answered by a jump."""
    lr, curve = view.lr, view.curve
    known = np.flatnonzero(np.isfinite(lr) & (lr > 0))
    if len(known) < 2 or not curve or curve.is_signed:
        return None
    highest = np.maximum.accumulate(lr[known])
    for at in np.flatnonzero(highest[1:] > LEAP * highest[:-1]) + 1:
        row = int(known[at])
        index = int(np.searchsorted(curve.steps, view.label(row)))
        before = curve.values[max(0, index - 10) : index + 1]
        after = curve.values[index + 1 : index + 1 + SOON]
        before = before[np.isfinite(before)]
        if len(before) < 3 or not len(after):
            continue
        top = float(np.max(np.where(np.isfinite(after), after, np.inf)))
        ratio = top / max(float(np.max(before)), 1e-12)
        if ratio > 2 and top - float(np.max(before)) > 6 * curve.noise:
            return Leap(row, float(highest[at - 1]), float(lr[row]), ratio)
    return None


ALWAYS = 0.98
"""Share of the measured steps on which the gradient must be exactly zero."""
ENOUGH = 20
"""Steps that show that it is no start (a gate that opens, a weight that is annealed from 0)."""


def is_always_zero(state: NDArray[np.float64], rows: list[int]) -> bool:
    """Whether the gradients of these parameters were zero from the first step on, always.

    Args:
        state: `GradState` by step and parameter, `[T, P]`.
        rows: places of the parameters.
    """
    own = state[:, rows]
    own = own[~np.isnan(own).any(axis=1) & (own != GradState.NOT_STEPPED).all(axis=1)]
    zero = (own == GradState.ZERO).all(axis=1)
    return len(zero) >= ENOUGH and bool(zero[:ENOUGH].all()) and float(zero.mean()) > ALWAYS


def broke_at_once(view: CaseView) -> bool:
    """Whether NaN or Inf came out of an ordinary loss: what was too large from the start grows."""
    if not view.is_broken:
        return False
    curve = view.curve
    lost = np.flatnonzero(~np.isfinite(curve.values))
    index = int(lost[0]) if len(lost) else len(curve)
    last = curve.level(index - 3, index)
    return bool(last < 2 * max(curve.level(index - 20, index - 3), abs(curve.start) / 4))
