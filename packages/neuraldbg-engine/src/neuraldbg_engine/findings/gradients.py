# SPDX-License-Identifier: LicenseRef-Proprietary
"""Gradients over depth and over time, before clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import median_mad, theil_sen
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import GradState, ParameterStat
from neuraldbg.schema.run import LayerRole
from neuraldbg_engine.findings.case import largest, logs, middle, ratio
from neuraldbg_engine.findings.finding import Graded, both, finding, graded, log_ramp, ramp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg_engine.findings.case import Case
    from neuraldbg_engine.timeline import Onset

    Array = NDArray[np.float64]

SHALLOW = 3
"""Weight layers below which there is no depth."""
STEPS = 20


def _slope(levels: Array) -> tuple[float, float] | None:
    """Return (log slope per layer towards the head, first / strongest of the last three)."""
    usable = np.isfinite(levels)
    if usable.sum() < SHALLOW or not np.nanmax(levels) > 0:
        return None
    floor = max(float(np.nanmax(levels)) * 1e-12, 1e-30)
    slope, _ = theil_sen(np.flatnonzero(usable), np.log(np.maximum(levels[usable], floor)))
    top = float(np.nanmax(levels[usable][-3:]))
    return slope, float(levels[usable][0]) / top if top > 0 else 1.0


@finding(
    "gradients.vanish_with_depth",
    "Heuristic: first layer / head 1e-2 to 1e-4, and a slope of 0.2 to 0.8 per layer in logs",
)
def vanish_with_depth(case: Case) -> Graded | None:
    """Early in the run the gradient falls by orders of magnitude from the head to the input."""
    found = _slope(case.early_gradient)
    if found is None:
        return None
    slope, share = found
    return graded(
        both(log_ramp(share, 1e-2, 1e-4), ramp(slope, 0.2, 0.8)),
        f"the first layer gets {share:.2g} of the head's gradient",
        case.chain[0],
        case.start,
        first_over_head=share,
        log_slope_per_layer=slope,
    )


@finding(
    "gradients.vanish_with_depth_late",
    "Heuristic: first layer / head 1e-2 to 1e-4, and a slope of 0.2 to 0.8 per layer in logs",
)
def vanish_with_depth_late(case: Case) -> Graded | None:
    """At the end of the run the gradient falls by orders of magnitude from head to input."""
    found = _slope(case.late_gradient)
    if found is None or case.is_short:
        return None
    slope, share = found
    return graded(
        both(log_ramp(share, 1e-2, 1e-4), ramp(slope, 0.2, 0.8)),
        f"at the end the first layer gets {share:.2g} of the head's gradient",
        case.chain[0],
        first_over_head=share,
        log_slope_per_layer=slope,
    )


@finding(
    "gradients.explode_with_depth",
    "Heuristic: first layer / head 1e2 to 1e4, and a slope of -0.2 to -0.8 per layer in logs",
)
def explode_with_depth(case: Case) -> Graded | None:
    """Early in the run the gradient grows by orders of magnitude from the head to the input."""
    found = _slope(case.early_gradient)
    if found is None:
        return None
    slope, share = found
    return graded(
        both(log_ramp(share, 1e2, 1e4), ramp(slope, -0.2, -0.8)),
        f"the first layer gets {share:.2g} times the head's gradient",
        case.chain[0],
        case.start,
        first_over_head=share,
        log_slope_per_layer=slope,
    )


@finding(
    "gradients.fade",
    "Heuristic: a layer falls to 1e-3 to 1e-6 of its early gradient, and of what the others keep",
)
def fade(case: Case) -> Graded | None:
    """A layer loses its gradient in the course of the run while others keep theirs."""
    left = ratio(case.late_gradient, case.early_gradient)
    if case.is_short or np.isfinite(left).sum() < 2:
        return None
    place = int(np.nanargmin(left))
    kept = float(np.nanmax(left))
    relative = float(left[place]) / max(kept, 1e-30)
    worst = max(float(left[place]), relative)
    grade = log_ramp(worst, 1e-3, 1e-6)
    change = case.change(logs(case.layer_gradient[:, place]), direction=-1, floor=0.2)
    return graded(
        grade,
        f"{case.chain[place]!r} keeps {float(left[place]):.2g} of its early gradient",
        case.chain[place],
        change.onset if change else None,
        left=float(left[place]),
        over_best=relative,
    )


@finding(
    "gradients.tiny", "the threshold that the session was given (1e-6); Heuristic: to a hundredth"
)
def tiny(case: Case) -> Graded | None:
    """The total gradient is below the vanishing threshold from the start on, unlearned."""
    early = float(case.view.early(case.view.gradient_total)) if case.rows else float("nan")
    limit = case.trace.settings.threshold_vanishing
    return graded(
        log_ramp(early, 10 * limit, 0.1 * limit),
        f"the total gradient norm starts at {early:.2g}",
        onset=case.start,
        norm=early,
    )


@finding(
    "gradients.huge", "the threshold that the session was given (1e3); Heuristic: to a hundredfold"
)
def huge(case: Case) -> Graded | None:
    """The total gradient norm is huge from the start on."""
    early = float(case.view.early(case.view.gradient_total)) if case.rows else float("nan")
    if not np.isfinite(early):
        return None
    limit = case.trace.settings.threshold_exploding
    return graded(
        log_ramp(early, 0.1 * limit, 10 * limit),
        f"the total gradient norm starts at {early:.2g}",
        onset=case.start,
        norm=early,
    )


@finding(
    "gradients.explode",
    "change point of the log norm; Heuristic: 10 to 1000 times the level before, odds of e^5 up",
)
def explode(case: Case) -> Graded | None:
    """From some step on the total gradient norm is orders above what it was."""
    total = logs(case.view.gradient_total)
    if np.isfinite(total).sum() < STEPS:
        return None
    change = case.change(total, direction=1, floor=0.2)
    if change is None:
        return graded(0.0)
    top = float(np.nanmax(total[-max(5, len(total) // 10) :], initial=change.before))
    times = float(np.exp(min(max(top, change.after) - change.before, 300)))
    place = _first_to_grow(case, change.onset)
    return graded(
        both(log_ramp(times, 10.0, 1000.0), ramp(change.evidence, 5, 25)),
        f"from step {change.onset.best} on the gradient norm grows to {times:.3g} times its level",
        place,
        change.onset,
        ratio=times,
        log_odds=change.evidence,
    )


def _first_to_grow(case: Case, onset: Onset) -> str | None:
    """Return the layer whose gradient grew most around an onset, against its own past."""
    row = case.view.row_at(onset.best)
    before = quiet(np.nanmedian, case.layer_gradient[max(0, row - 60) : max(row - 1, 1)], axis=0)
    around = quiet(np.nanmax, case.layer_gradient[row : row + 10], axis=0)
    place, times = largest(ratio(around, before))
    return case.chain[place] if place >= 0 and times > 3 else None


@finding(
    "gradients.heavy_tailed",
    "Pascanu et al. 2013, cliffs; Heuristic: rare norms of 10 to 100 times the median",
)
def heavy_tailed(case: Case) -> Graded | None:
    """Rare gradient norms stand orders above the median."""
    total = case.view.gradient_total
    known = total[np.isfinite(total) & (total > 0)]
    if len(known) < STEPS:
        return None
    usual = float(np.median(known))
    above = known > 10 * usual
    times = float(known.max()) / usual
    rare = ramp(float(above.mean()), 0.25, 0.1)
    flags = np.nan_to_num(total) > 10 * usual
    return graded(
        both(log_ramp(times, 10.0, 100.0), rare),
        f"the largest gradient norm is {times:.3g} times the median",
        onset=case.since(flags),
        largest_over_median=times,
        share_above_10=float(above.mean()),
    )


@finding(
    "gradients.spike", "Heuristic: robust z of 10 to 40 of the log norm, 5 to 50 times the median"
)
def spike(case: Case) -> Graded | None:
    """A single gradient stands far out of the run's own spread."""
    total = logs(case.view.gradient_total)
    if np.isfinite(total).sum() < STEPS:
        return None
    usual, scale = median_mad(total)
    row, top = largest(total)
    z = (top - float(usual)) / max(float(scale), 0.1)
    times = float(np.exp(min(top - float(usual), 300)))
    return graded(
        both(ramp(z, 10, 40), log_ramp(times, 5.0, 50.0)),
        f"the gradient of step {case.view.label(row)} is {times:.3g} times the median",
        onset=case.at(row),
        robust_z=z,
        ratio=times,
    )


@finding("gradients.nonfinite", "definition; Heuristic: one step counts half")
def nonfinite(case: Case) -> Graded | None:
    """Gradients were NaN or Inf on steps that were not skipped."""
    total = case.view.gradient_total
    if not len(total) or np.isnan(total).all():
        return None
    bad = np.isinf(total) & ~(case.view.ledger("skipped") > 0)
    if not bad.any():
        return graded(0.0)
    state = case.parameter(ParameterStat.GRAD_STATE)
    row = int(np.flatnonzero(bad)[0])
    broken = np.flatnonzero(state[row] == GradState.NONFINITE)
    place = case.view.flow.place
    layers = {case.view.run.parameters[int(i)].layer for i in broken}
    layer = max(layers, key=lambda path: (place.get(path, 0), path), default=None)
    return graded(
        0.5 if bad.sum() == 1 else 1.0,
        f"gradients are not finite at step {case.view.label(row)}",
        layer,
        case.at(row),
        steps=int(bad.sum()),
    )


def _state_share(case: Case, wanted: GradState) -> tuple[float, str | None, Array] | None:
    """Return (share of trainable matrices mostly in a state, first such layer, share per step)."""
    view = case.view
    rows = [i for i, p in enumerate(view.run.parameters) if p.is_trainable and len(p.shape) > 1]
    if not rows or case.rows < STEPS or not case.worked.any():
        return None
    state = case.parameter(ParameterStat.GRAD_STATE)[case.worked][:, rows]
    often = quiet(np.nanmean, np.where(np.isnan(state), np.nan, state == wanted), axis=0)
    hits = [i for i, share in enumerate(often) if share > 0.9]
    layers = sorted(
        {view.run.parameters[rows[i]].layer for i in hits},
        key=lambda path: (view.flow.place.get(path, 0), path),
    )
    share = len(hits) / len(rows)
    return share, layers[0] if layers else None, often


@finding(
    "gradients.absent", "definition: .grad is None on 90 % of the steps; Heuristic: any counts half"
)
def absent(case: Case) -> Graded | None:
    """Trainable matrices get no gradient at all, step after step."""
    found = _state_share(case, GradState.NONE)
    if found is None:
        return None
    share, layer, _ = found
    return graded(
        0.5 + 0.5 * ramp(share, 0.0, 0.5) if share else 0.0,
        f"{share:.0%} of the trainable matrices never get a gradient, first {layer!r}",
        layer,
        case.start if share else None,
        share=share,
    )


@finding(
    "gradients.zero", "definition: exact zeros on 90 % of the steps; Heuristic: any counts half"
)
def zero(case: Case) -> Graded | None:
    """Trainable matrices get a gradient of exact zeros, step after step."""
    found = _state_share(case, GradState.ZERO)
    if found is None:
        return None
    share, layer, _ = found
    return graded(
        0.5 + 0.5 * ramp(share, 0.0, 0.5) if share else 0.0,
        f"{share:.0%} of the trainable matrices get exact zeros, first {layer!r}",
        layer,
        case.start if share else None,
        share=share,
    )


@finding("gradients.sparse", "Heuristic: the median matrix's gradient holds 50 to 90 % exact zeros")
def sparse(case: Case) -> Graded | None:
    """Most entries of the gradients are exact zeros (embeddings left out)."""
    flow = case.view.flow
    rows = [
        i
        for i in case.view.matrix_rows
        if (info := flow.info.get(case.view.run.parameters[i].layer)) is None
        or info.role is not LayerRole.EMBEDDING
    ]
    share = middle(case.late("parameter", ParameterStat.GRAD_ZERO_SHARE)[rows]) if rows else np.nan
    return graded(
        ramp(share, 0.5, 0.9), f"{share:.0%} of the gradients are exact zeros", share=float(share)
    )


@finding(
    "gradients.ramp_up", "Heuristic: ordered growth, rank correlation with the step of 0.7 to 0.95"
)
def ramp_up(case: Case) -> Graded | None:
    """The gradient norm grows steadily from the very first steps on, as sums do."""
    total = case.view.gradient_total[: max(STEPS, case.rows // 4)]
    known = total[np.isfinite(total)]
    if len(known) < STEPS:
        return None
    ranks = np.argsort(np.argsort(known))
    correlation = float(np.corrcoef(ranks, np.arange(len(known)))[0, 1])
    times = middle(known[-5:]) / max(middle(known[:3]), 1e-30)
    return graded(
        both(ramp(correlation, 0.7, 0.95), log_ramp(times, 2.0, 5.0)),
        f"the norm grew to {times:.3g} times its start in {len(known)} steps",
        onset=case.start,
        rank_correlation=correlation,
        ratio=times,
    )


@finding(
    "gradients.clipped", "definition; Heuristic: half to all of the clipped steps", is_context=True
)
def clipped(case: Case) -> Graded | None:
    """Clipping is in force: the total norm is above the limit on most steps."""
    total, limit = case.view.ledger("clip_total_norm"), case.view.ledger("clip_max_norm")
    known = np.isfinite(limit) & ~np.isnan(total)
    if known.sum() < 3:
        return None
    share = float((total[known] > limit[known]).mean())
    return graded(ramp(share, 0.3, 0.9), f"clipping acts on {share:.0%} of the steps", share=share)


@finding("gradients.clipped_away", "Heuristic: clipping leaves 1e-2 to 1e-4 of the usual gradient")
def clipped_away(case: Case) -> Graded | None:
    """Clipping leaves next to nothing of the usual gradient."""
    total, limit = case.view.ledger("clip_total_norm"), case.view.ledger("clip_max_norm")
    known = np.isfinite(limit) & np.isfinite(total) & (total > 0)
    if known.sum() < 3:
        return None
    left = middle(limit[known] / total[known])
    return graded(
        log_ramp(left, 1e-2, 1e-4),
        f"clipping leaves {left:.2g} of the gradient",
        onset=case.start,
        left=left,
    )
