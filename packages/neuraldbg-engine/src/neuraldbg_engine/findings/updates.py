# SPDX-License-Identifier: LicenseRef-Proprietary
"""How far a step moves the weights: update RMS over weight RMS, per matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.sharpness import lr_times_sharpness
from neuraldbg.reasoning.symptoms import departure_row, replaced_row, weight_growth
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import GradState, ParameterStat
from neuraldbg_engine.findings.case import largest, logs, middle
from neuraldbg_engine.findings.finding import Graded, both, finding, graded, log_ramp, ramp

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case

USUAL = 1e-3
"""Update/weight ratio of training that goes well (Karpathy, CS231n notes, "ratio of weights")."""
FEW = 3
"""Measured steps below which nothing is said."""


def _layer(case: Case, column: int) -> str:
    """Return the layer that owns a column of `update_ratio`."""
    return case.view.run.parameters[int(case.view.matrix_rows[column])].layer


@finding(
    "updates.high",
    "1e-3 is usual (CS231n notes); Heuristic: 2e-2 to 0.2 as the median over the run",
)
def high(case: Case) -> Graded | None:
    """Step for step the median matrix moves far more than usual."""
    size = case.view.step_size
    known = size[np.isfinite(size)]
    if len(known) < FEW:
        return None
    ratio = float(np.median(known))
    return graded(
        log_ramp(ratio, 2e-2, 0.2),
        f"a step moves the median matrix by {ratio:.2g} of its size",
        onset=case.start,
        update_weight_ratio=ratio,
    )


@finding("updates.high_at_start", "1e-3 is usual (CS231n notes); Heuristic: 3e-2 to 0.3")
def high_at_start(case: Case) -> Graded | None:
    """The first steps move the median matrix by a large share of its size."""
    known = case.view.step_size[np.isfinite(case.view.step_size)]
    if len(known) < FEW:
        return None
    ratio = float(np.median(known[:6]))
    return graded(
        log_ramp(ratio, 3e-2, 0.3),
        f"the first steps move the median matrix by {ratio:.2g} of its size",
        onset=case.start,
        update_weight_ratio=ratio,
    )


@finding("updates.low", "1e-3 is usual (CS231n notes); Heuristic: 1e-4 to 1e-5")
def low(case: Case) -> Graded | None:
    """One step hardly moves the median matrix."""
    known = case.view.step_size[np.isfinite(case.view.step_size)]
    if len(known) < FEW:
        return None
    ratio = float(np.median(known))
    return graded(
        log_ramp(ratio, 1e-4, 1e-5),
        f"a step moves the median matrix by {ratio:.2g} of its size",
        onset=case.start,
        update_weight_ratio=ratio,
    )


@finding(
    "updates.path_short",
    "core's lr_too_low: all steps together move the weights by 5 % at most; Heuristic: 20 to 2 %",
)
def path_short(case: Case) -> Graded | None:
    """Over the whole run the weights can hardly have moved."""
    ratios = case.view.update_ratio
    if case.rows < 30 or not ratios.size:
        return None
    length = middle(quiet(np.nanmean, ratios, axis=0)) * case.trace.step_count
    return graded(
        log_ramp(length, 0.2, 0.02),
        f"all steps together move the median matrix by at most {length:.2g} of its size",
        onset=case.start,
        path=length,
    )


@finding(
    "updates.high_before_departure",
    "1e-3 is usual (CS231n notes); Heuristic: 2e-2 to 0.2 in the six steps before",
)
def high_before_departure(case: Case) -> Graded | None:
    """Just before the loss left for good, steps were far longer than usual."""
    row = departure_row(case.view)
    if row is None:
        return graded(0.0) if case.view.curve else None
    ratio = middle(case.view.step_size[max(0, row - 6) : row + 1])
    return graded(
        log_ramp(ratio, 2e-2, 0.2),
        f"before the loss left, a step moved the median matrix by {ratio:.2g} of its size",
        onset=case.at(max(row - 1, 0)),
        update_weight_ratio=ratio,
    )


@finding(
    "updates.early_larger",
    "Heuristic: 30 to 150 times as far, per lr; Adam's first steps are up to 10 times as long",
)
def early_larger(case: Case) -> Graded | None:
    """At the same lr an adaptive optimizer's first steps are far longer than its later ones."""
    if not case.view.is_adaptive:
        return None
    size, lr = case.view.step_size, case.view.lr
    known = np.flatnonzero(np.isfinite(size) & np.isfinite(lr) & (lr > 0))
    if len(known) < 20:
        return None
    per_lr = size[known] / lr[known]
    later = middle(per_lr[10:])
    times = middle(per_lr[:5]) / later if later > 0 else float("nan")
    return graded(
        log_ramp(times, 30.0, 150.0),
        f"per lr, the first steps are {times:.3g} times as long as the later ones",
        onset=case.start,
        ratio=times,
    )


@finding("updates.grow", "change point of the log ratio; Heuristic: 3 to 30 times, odds of e^5 up")
def grow(case: Case) -> Graded | None:
    """From some step on, steps move the weights far more than before."""
    change = case.change(logs(case.view.step_size), direction=1, floor=0.1)
    if change is None:
        return None if middle(case.view.step_size) != middle(case.view.step_size) else graded(0.0)
    late = float(case.view.late(case.view.step_size))
    times = late / np.exp(change.before)
    return graded(
        both(log_ramp(float(times), 3.0, 30.0), ramp(change.evidence, 5, 25)),
        f"from step {change.onset.best} on, steps grow to {times:.3g} times their length",
        onset=change.onset,
        ratio=float(times),
        log_odds=change.evidence,
    )


@finding("updates.uneven", "Heuristic: a layer that moves 30 to 300 times as far as the median one")
def uneven(case: Case) -> Graded | None:
    """One layer's weights move far more per step than those of the others."""
    ratios = case.view.late(case.view.update_ratio) if case.view.update_ratio.size else None
    if ratios is None or np.isfinite(ratios).sum() < FEW:
        return None
    place, top = largest(ratios)
    usual = middle(ratios[ratios > 0])
    times = top / usual if usual > 0 else float("nan")
    return graded(
        log_ramp(times, 30.0, 300.0),
        f"{_layer(case, place)!r} moves {times:.3g} times as far as the median matrix",
        _layer(case, place),
        ratio=times,
    )


@finding("updates.none", "definition: bit-identical weights after a step; Heuristic: 50 to 95 %")
def none(case: Case) -> Graded | None:
    """Steps leave all weights bit-identical."""
    moved = case.parameter(ParameterStat.UPDATE_RMS)[:, case.view.matrix_rows]
    known = np.asarray(~np.isnan(moved).all(axis=1), dtype=np.bool_)
    if not moved.size or known.sum() < FEW:
        return None
    still = (quiet(np.nanmax, moved, axis=1) == 0) & known
    share = float(still.sum() / known.sum())
    return graded(
        ramp(share, 0.5, 0.95),
        f"on {share:.0%} of the steps no weight moved at all",
        onset=case.since(still, known),
        share=share,
    )


@finding("updates.some_never_move", "definition: bit-identical trainable weights all along")
def some_never_move(case: Case) -> Graded | None:
    """Some trainable matrices never move, while others do."""
    moved = case.parameter(ParameterStat.UPDATE_RMS)
    rows = [
        i for i, p in enumerate(case.view.run.parameters) if p.is_trainable and len(p.shape) > 1
    ]
    if not len(moved) or len(rows) < 2:
        return None
    most = quiet(np.nanmax, moved[:, rows], axis=0)
    if not np.nanmax(np.nan_to_num(most)) > 0:
        return None
    state = case.parameter(ParameterStat.GRAD_STATE)[:, rows]
    never = ~(most > 0) & ~np.all(np.isnan(state), axis=0)
    if not never.any():
        return graded(0.0)
    share = float(never.mean())
    layer = case.view.run.parameters[rows[int(np.flatnonzero(never)[0])]].layer
    return graded(
        0.5 + 0.5 * ramp(share, 0.0, 0.3),
        f"{int(never.sum())} of {len(rows)} trainable matrices never move, first in {layer!r}",
        layer,
        case.start,
        matrices=int(never.sum()),
        share=share,
    )


@finding("updates.moved_without_step", "core's symptom: a move that the optimizer did not make")
def moved_without_step(case: Case) -> Graded | None:
    """Between two steps weights moved as no optimizer step explains: loaded, reset, replaced."""
    if case.rows < FEW or "lbfgs" in case.view.optimizer_kinds:
        return None
    row = replaced_row(case.view, 1, case.rows - 1)
    if row is None:
        return graded(0.0)
    return graded(
        1.0,
        f"weights moved before step {case.view.label(row)} without an optimizer step",
        onset=case.at(row),
        step=case.view.label(row),
    )


@finding("updates.opposed", "Heuristic: cosine of consecutive gradients below -0.2 to -0.6")
def opposed(case: Case) -> Graded | None:
    """Unlearned, each gradient points back where the last one came from: steps overshoot."""
    cosine = middle(case.late("parameter", ParameterStat.GRAD_COSINE)[case.view.matrix_rows])
    if case.rows < 10:
        return None
    progress = case.view.curve.progress if case.view.curve else 0.0
    return graded(
        both(ramp(cosine, -0.2, -0.6), ramp(progress, 0.7, 0.3)),
        f"consecutive gradients have a cosine of {cosine:.2f}",
        cosine=cosine,
        progress=progress,
    )


@finding("updates.agree", "Heuristic: cosine of consecutive gradients of 0.3 to 0.8")
def agree(case: Case) -> Graded | None:
    """Gradient after gradient points the same way at the end: longer steps would get there."""
    cosine = middle(case.late("parameter", ParameterStat.GRAD_COSINE)[case.view.matrix_rows])
    if case.rows < 10:
        return None
    progress = case.view.curve.progress if case.view.curve else 0.0
    return graded(
        both(ramp(cosine, 0.3, 0.8), ramp(progress, 0.5, 0.2)),
        f"consecutive gradients have a cosine of {cosine:.2f}",
        cosine=cosine,
        progress=progress,
    )


@finding(
    "updates.overshoot",
    "Cohen et al. 2021: gradient descent diverges above 2; Heuristic: 1.6 to 2.4 over 10 steps",
)
def overshoot(case: Case) -> Graded | None:
    """Plain gradient steps overshoot: lr times sharpness is at the edge of stability or beyond."""
    sharp = lr_times_sharpness(case.view)
    row = departure_row(case.view)
    known = np.flatnonzero(np.isfinite(sharp[: row + 1] if row is not None else sharp))
    if len(known) < 5:
        return None
    rows = known[-10:] if row is not None and row >= 10 else known[:10]
    size = float(np.median(sharp[rows]))
    return graded(
        ramp(size, 1.6, 2.4),
        f"lr times sharpness is {size:.3g}, stable below 2",
        onset=case.at(int(rows[0])),
        lr_times_sharpness=size,
    )


@finding("updates.weights_grow", "Heuristic: the median matrix at 2 to 10 times its initial size")
def weights_grow(case: Case) -> Graded | None:
    """Weights end at a multiple of their initial size."""
    if not case.view.matrix_rows.size or case.rows < 10:
        return None
    times = weight_growth(case.view)
    return graded(
        log_ramp(times, 2.0, 10.0),
        f"the median matrix grew to {times:.3g} times its initial RMS",
        ratio=times,
    )


@finding("updates.weights_shrink", "Heuristic: the median matrix at 0.7 to 0.2 of its initial size")
def weights_shrink(case: Case) -> Graded | None:
    """Weights shrink away."""
    if not case.view.matrix_rows.size or case.rows < 10:
        return None
    times = weight_growth(case.view)
    return graded(
        log_ramp(times, 0.7, 0.2),
        f"the median matrix shrank to {times:.3g} of its initial RMS",
        onset=case.start,
        ratio=times,
    )


@finding("updates.one_layer_grows", "Heuristic: one matrix at 10 to 100 times its size, others not")
def one_layer_grows(case: Case) -> Graded | None:
    """One layer's weights grow far more than those of the others."""
    view = case.view
    rows = view.matrix_rows
    if rows.size < FEW or case.rows < 10:
        return None
    initial = np.array([view.run.parameters[i].initial_rms for i in rows])
    late = case.late("parameter", ParameterStat.WEIGHT_RMS)[rows]
    times = np.where(initial > 0, late / np.where(initial > 0, initial, 1.0), np.nan)
    place, top = largest(times)
    if place < 0:
        return None
    over = top / max(middle(times), 1e-12)
    return graded(
        both(log_ramp(top, 10.0, 100.0), log_ramp(over, 3.0, 20.0)),
        f"the weights of {_layer(case, place)!r} grew to {top:.3g} times their size",
        _layer(case, place),
        ratio=top,
    )


@finding("updates.not_owned", "definition: gradients arrive that no optimizer uses")
def not_owned(case: Case) -> Graded | None:
    """Trainable parameters get gradients and belong to no optimizer."""
    state = case.parameter(ParameterStat.GRAD_STATE)
    rows = [i for i, p in enumerate(case.view.run.parameters) if p.is_trainable]
    if not len(state) or not case.view.run.optimizers or not rows:
        return None
    owned = {name for o in case.view.run.optimizers for name in o.parameters}
    left = [i for i in rows if case.view.run.parameters[i].name not in owned]
    share = len(left) / len(rows)
    idle = (state[:, left] == GradState.NOT_STEPPED).any() if left else False
    layer = case.view.run.parameters[left[0]].layer if left else None
    return graded(
        (0.5 + 0.5 * ramp(share, 0.0, 0.3)) if left else 0.0,
        f"{len(left)} of {len(rows)} trainable tensors are in no optimizer, first in {layer!r}",
        layer,
        case.start if left else None,
        tensors=len(left),
        share=share,
        is_idle=int(idle),
    )
