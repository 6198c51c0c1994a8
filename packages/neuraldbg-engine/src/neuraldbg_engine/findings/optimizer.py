# SPDX-License-Identifier: LicenseRef-Proprietary
"""The optimizer's state: second moments, eps, decay, momentum, fresh moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import OptimizerStat, ParameterStat
from neuraldbg_engine.findings.case import largest, middle
from neuraldbg_engine.findings.finding import Graded, both, finding, graded, log_ramp, ramp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg_engine.findings.case import Case

    Array = NDArray[np.float64]

HORIZON = 200
"""Rows over which the second moment is followed before a spike. Heuristic: beta2 0.99 forgets by
then, and 0.999 has hardly moved: the mean over them stands for it."""


def _setting(case: Case, stat: OptimizerStat) -> float:
    values = case.view.optimizer(stat)
    return float(quiet(np.nanmax, values)) if values.size else float("nan")


@finding(
    "optimizer.second_moment_lags",
    "Wortsman et al. 2023: RMS of 2.3 precedes spikes; Heuristic: 4 to 12",
)
def second_moment_lags(case: Case) -> Graded | None:
    """Shortly before the loss spiked, a tensor's gradient was far above its second moment."""
    curve = case.view.curve
    if not case.view.is_adaptive or not curve or not case.view.run.parameters or case.rows < 20:
        return None
    jumps = [jump for jump in curve.jumps if jump[0] >= 20 and jump[2] > 1.5]
    if not jumps:
        return graded(0.0)
    rms = case.view.gradient_rms
    top, found = 0.0, (0, 0)
    for index, _, _ in sorted(jumps, key=lambda jump: -jump[1])[:3]:
        row = case.view.row_at(int(curve.steps[index]))
        first = max(0, row - 8)
        past = quiet(np.nanmean, rms[max(0, first - HORIZON) : max(first, 1)] ** 2, axis=0)
        window = rms[first : row + 1] / np.sqrt(np.maximum(past, 1e-30))
        window = np.where(np.isfinite(window), window, np.nan)
        if np.isnan(window).all():
            continue
        at = np.unravel_index(int(np.nanargmax(window)), window.shape)
        if float(window[at]) > top:
            top, found = float(window[at]), (first + int(at[0]), int(at[1]))
    layer = case.view.run.parameters[found[1]].layer
    return graded(
        log_ramp(top, 4.0, 12.0),
        f"the gradient of {layer!r} was {top:.3g} times what its second moment knew",
        layer,
        case.at(found[0]),
        ratio=top,
    )


@finding(
    "optimizer.ratio_high",
    "Wortsman et al. 2023: RMS of grad / sqrt(v) of 2.3; Heuristic: 2.3 to 8",
)
def ratio_high(case: Case) -> Graded | None:
    """On some step RMS of grad / sqrt(v) of a tensor was far above 1, after the first steps."""
    values = case.parameter(ParameterStat.SECOND_MOMENT_RATIO)[10:]
    if not values.size or np.isnan(values).all():
        return None
    tops = quiet(np.nanmax, values, axis=0)
    place, top = largest(tops)
    row = 10 + int(np.nanargmax(values[:, place]))
    layer = case.view.run.parameters[place].layer
    return graded(
        log_ramp(top, 2.3, 8.0),
        f"RMS of grad / sqrt(v) of {layer!r} reached {top:.3g}",
        layer,
        case.at(row),
        ratio=top,
    )


@finding(
    "optimizer.eps_dominates", "definition: sqrt(v) < eps; Heuristic: 30 to 90 % of the coordinates"
)
def eps_dominates(case: Case) -> Graded | None:
    """For most coordinates eps is larger than the root of the second moment."""
    if not case.view.matrix_rows.size:
        return None
    shares = case.late("parameter", ParameterStat.EPS_SHARE)[case.view.matrix_rows]
    if np.isnan(shares).all():
        return None
    share = middle(shares)
    place, _ = largest(shares)
    layer = case.view.run.parameters[int(case.view.matrix_rows[place])].layer
    return graded(
        ramp(share, 0.3, 0.9),
        f"for {share:.0%} of the coordinates sqrt(v) is below eps",
        layer,
        share=share,
        eps=_setting(case, OptimizerStat.EPS),
    )


@finding("optimizer.eps_tiny", "smallest float16 is 6e-8 (IEEE 754); definition")
def eps_tiny(case: Case) -> Graded | None:
    """Eps is no number of the weights' own format: it rounds to 0."""
    eps = _setting(case, OptimizerStat.EPS)
    if not eps >= 0 or not case.view.is_adaptive:
        return None
    half = any(p.dtype == "float16" for p in case.view.run.parameters)
    return graded(
        1.0 if half and eps < 6e-8 else 0.0,
        f"eps {eps:.2g} rounds to 0 in float16",
        onset=case.start,
        eps=eps,
    )


@finding(
    "optimizer.decay_share", "Heuristic: decay is 10 to 80 % of how far a step moves the weights"
)
def decay_share(case: Case) -> Graded | None:
    """Weight decay is a large share of the update."""
    decay, lr = _setting(case, OptimizerStat.WEIGHT_DECAY), case.view.lr
    if not decay >= 0 or not np.isfinite(lr).any():
        return None
    if decay == 0:
        return graded(0.0)
    size = middle(case.view.step_size)
    pull = decay * middle(lr)
    share = pull / max(size, pull, 1e-30) if size > 0 else np.nan
    return graded(
        ramp(share, 0.1, 0.8),
        f"decay pulls by {pull:.2g} of the weights a step, of {size:.2g} in all",
        onset=case.start,
        share=share,
        weight_decay=decay,
    )


@finding(
    "optimizer.decay_high", "0.01 to 0.1 is usual (Loshchilov and Hutter 2019); Heuristic: 0.2 to 2"
)
def decay_high(case: Case) -> Graded | None:
    """The weight decay is far above what is usual."""
    decay = _setting(case, OptimizerStat.WEIGHT_DECAY)
    return graded(
        log_ramp(decay, 0.2, 2.0),
        f"weight decay {decay:.3g}",
        onset=case.start,
        weight_decay=decay,
    )


@finding(
    "optimizer.weights_decay_away", "Heuristic: weights fall to 0.8 to 0.3, as lr x decay predicts"
)
def weights_decay_away(case: Case) -> Graded | None:
    """Weights shrink geometrically at the speed of the decay term."""
    decay, lr = _setting(case, OptimizerStat.WEIGHT_DECAY), case.view.lr
    weights = case.parameter(ParameterStat.WEIGHT_RMS)[:, case.view.matrix_rows]
    if not decay >= 0 or not weights.size or case.rows < 20 or not np.isfinite(lr).any():
        return None
    if decay == 0:
        return graded(0.0)
    first, last = case.view.early(weights), case.view.late(weights)
    left = middle(last / np.where(first > 0, first, np.nan))
    predicted = float(np.exp(-decay * middle(lr) * case.trace.step_count))
    fits = ramp(abs(np.log(max(left, 1e-9)) / min(np.log(predicted), -1e-9) - 1), 2.0, 0.5)
    return graded(
        both(ramp(left, 0.8, 0.3), fits),
        f"weights fell to {left:.2g} of their size; decay alone gives {predicted:.2g}",
        onset=case.start,
        left=left,
        predicted=predicted,
    )


@finding(
    "optimizer.momentum_high", "0.9 is usual (Sutskever et al. 2013); Heuristic: 0.97 to 0.995"
)
def momentum_high(case: Case) -> Graded | None:
    """Momentum carries a step on for a hundred steps and more."""
    momentum = _setting(case, OptimizerStat.MOMENTUM)
    return graded(ramp(momentum, 0.97, 0.995), f"momentum {momentum:.4g}", momentum=momentum)


@finding("optimizer.beta2_slow", "Wortsman et al. 2023; Heuristic: 0.99 to 0.999", is_context=True)
def beta2_slow(case: Case) -> Graded | None:
    """The second moment remembers hundreds of steps."""
    beta2 = _setting(case, OptimizerStat.BETA2)
    return graded(ramp(beta2, 0.985, 0.999), f"beta2 {beta2:.5g}", beta2=beta2)


@finding("optimizer.is_adaptive", "class names of optimizers", is_context=True)
def is_adaptive(case: Case) -> Graded | None:
    """Updates are normalised by a second moment (Adam and its like)."""
    if not case.view.run.optimizers:
        return None
    kinds = ", ".join(sorted(case.view.optimizer_kinds))
    return graded(1.0 if case.view.is_adaptive else 0.0, kinds, kinds=kinds)


@finding(
    "optimizer.holds_foreign", "definition; Heuristic: any counts half, as many as its own all"
)
def holds_foreign(case: Case) -> Graded | None:
    """The optimizer holds tensors that belong to no watched model."""
    if not case.view.run.optimizers:
        return None
    foreign = sum(o.foreign for o in case.view.run.optimizers)
    own = sum(len(o.parameters) for o in case.view.run.optimizers)
    share = foreign / max(foreign + own, 1)
    return graded(
        0.4 + 0.6 * ramp(share, 0.0, 0.5) if foreign else 0.0,
        f"{foreign} tensors of the optimizer are not the model's",
        onset=case.start if case.rows else None,
        foreign=foreign,
        share=share,
    )


@finding(
    "optimizer.no_momentum_early", "Kingma and Ba 2015: moments start at 0; capture's own sight"
)
def no_momentum_early(case: Case) -> Graded | None:
    """Moments begin anew beside weights that are trained already."""
    if not case.rows:
        return None
    notes = case.view.observations.get("fresh_moments", [])
    if not notes:
        return graded(0.0)
    note = notes[0]
    return graded(
        max(float(note.figures.get("confidence", 0.6)), 0.5),
        f"moments begin anew at step {note.step}",
        note.layer,
        case.at(case.view.row_at(note.step)),
        step=note.step,
    )
