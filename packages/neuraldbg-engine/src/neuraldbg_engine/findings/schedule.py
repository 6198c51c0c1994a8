# SPDX-License-Identifier: LicenseRef-Proprietary
"""The learning rate over the run: leaps, decays, warmup, what it is by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.schedule import early_decay
from neuraldbg.reasoning.symptoms import lr_leap
from neuraldbg_engine.findings.finding import Graded, both, finding, graded, log_ramp, ramp
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg_engine.findings.case import Case

ENOUGH = 10


def _known(case: Case) -> NDArray[np.float64]:
    """Return the recorded lrs, in order."""
    lr = case.view.lr
    return lr[np.isfinite(lr)]


@finding("lr.leaps", "core's symptom: the lr rises to 3 times all before and the loss to twice")
def leaps(case: Case) -> Graded | None:
    """The lr rose above everything before, and the loss answered at once."""
    if len(_known(case)) < ENOUGH:
        return None
    leap = lr_leap(case.view)
    if leap is None:
        return graded(0.0)
    return graded(
        1.0,
        f"the lr rose from {leap.before:.3g} to {leap.after:.3g} and the loss with it",
        onset=case.at(leap.row),
        before=leap.before,
        after=leap.after,
    )


def _peak(case: Case, says: str, *, zero: float, one: float) -> Graded | None:
    """Grade the highest lr by how many times it is what the optimizer is commonly used with."""
    known = _known(case)
    if not len(known):
        return None
    lr = float(known.max())
    times = lr / (1e-3 if case.view.is_adaptive else 0.1)
    return graded(
        log_ramp(times, zero, one),
        says.format(lr=f"{lr:.3g}"),
        onset=case.start,
        over_usual=times,
        lr=lr,
    )


@finding("lr.high", "Adam's default is 1e-3 (Kingma and Ba 2015), SGD's 0.1; Heuristic: 5 to 50 x")
def high(case: Case) -> Graded | None:
    """The lr is far above what the optimizer is commonly used with."""
    return _peak(case, "the lr reaches {lr}", zero=5.0, one=50.0)


@finding(
    "lr.low", "Adam's default is 1e-3 (Kingma and Ba 2015), SGD's 0.1; Heuristic: 1e-2 to 1e-4"
)
def low(case: Case) -> Graded | None:
    """The lr is far below what the optimizer is commonly used with."""
    return _peak(case, "the lr never exceeds {lr}", zero=1e-2, one=1e-4)


@finding(
    "lr.zero", "definition: an lr of exactly 0 moves nothing; Heuristic: half to nearly all steps"
)
def zero(case: Case) -> Graded | None:
    """The lr is exactly 0."""
    known = _known(case)
    if len(known) < ENOUGH:
        return None
    share = float((known == 0).mean())
    flags = case.view.lr == 0
    return graded(
        ramp(share, 0.3, 0.9),
        f"the lr is 0 on {share:.0%} of the steps",
        onset=case.since(flags),
        share=share,
    )


@finding(
    "lr.gone_early",
    "core's schedule: below 5 % of its peak in the first half of the run and for good",
)
def gone_early(case: Case) -> Graded | None:
    """The lr is gone long before the run ends."""
    if len(_known(case)) < 20:
        return None
    decay = early_decay(case.view)
    if decay is None:
        return graded(0.0)
    share = decay.gone / case.rows
    first, last = case.view.label(decay.first_drop), case.view.label(decay.gone)
    return graded(
        0.5 + 0.5 * ramp(share, 0.6, 0.3),
        f"the lr fell from {decay.peak:.3g} to a tenth by step {last}",
        onset=Onset.within(first, max(first, last)),
        share_of_run=share,
        shape=decay.shape,
        peak=decay.peak,
    )


@finding(
    "lr.plateau_follows_decay",
    "Heuristic: the loss gained 3 to 20 times as much per step before the lr was gone as after",
)
def plateau_follows_decay(case: Case) -> Graded | None:
    """The loss stops falling where the lr is gone."""
    if len(_known(case)) < 20 or not case.view.curve:
        return None
    decay = early_decay(case.view)
    if decay is None:
        return graded(0.0)
    times = decay.gain_before / max(decay.gain_after, 1e-9)
    left = ramp(case.view.curve.progress, 0.9, 0.6)
    return graded(
        both(log_ramp(times, 3.0, 20.0), left),
        f"per step it gained {times:.3g} times as much before the lr was gone",
        onset=case.at(decay.gone),
        gain_ratio=min(times, 1e9),
    )


@finding(
    "lr.decays_per_batch", "core's schedule: a staircase or geometric decay within 30 % of a run"
)
def decays_per_batch(case: Case) -> Graded | None:
    """A schedule that commonly counts epochs is used up within the first batches."""
    if len(_known(case)) < 20:
        return None
    decay = early_decay(case.view)
    if decay is None:
        return graded(0.0)
    share = decay.gone / case.rows
    fits = {"staircase": 1.0, "geometric": 1.0, "swinging": 0.7}.get(decay.shape, 0.2)
    return graded(
        fits * ramp(share, 0.5, 0.2),
        f"a {decay.shape} decay is used up by step {case.view.label(decay.gone)}",
        onset=case.at(decay.first_drop),
        share_of_run=share,
        shape=decay.shape,
    )


@finding("lr.swings", "Heuristic: 2 to 4 rises after a fall by half, without a jump")
def swings(case: Case) -> Graded | None:
    """The lr goes down and up again and again."""
    known = _known(case)
    if len(known) < 20 or known.max() <= 0:
        return None
    low = known < 0.4 * known.max()
    rises = int(np.sum(low[:-1] & ~low[1:]))
    warmup = 1 if low[0] else 0
    return graded(
        ramp(rises - warmup, 0, 3),
        f"the lr came back {rises - warmup} times",
        returns=rises - warmup,
    )


@finding("lr.peak_not_reached", "the schedule's own max_lr; Heuristic: half to a fifth of it")
def peak_not_reached(case: Case) -> Graded | None:
    """A schedule was planned to peak far above what the run ever saw."""
    known = _known(case)
    peaks = [o.options.get("max_lr") for o in case.view.run.optimizers]
    planned = max((float(p) for p in peaks if isinstance(p, int | float)), default=0.0)
    if not len(known) or planned <= 0:
        return None
    share = float(known.max()) / planned
    return graded(
        log_ramp(share, 0.5, 0.2),
        f"planned up to {planned:.3g}, the lr never exceeded {float(known.max()):.3g}",
        onset=case.start,
        share=share,
    )


@finding(
    "lr.full_at_start", "Heuristic: 50 to 95 % of the peak at the very first step", is_context=True
)
def full_at_start(case: Case) -> Graded | None:
    """The first step already has the full lr: there is no warmup."""
    known = _known(case)
    if len(known) < ENOUGH or known.max() <= 0:
        return None
    share = float(known[0] / known.max())
    return graded(
        ramp(share, 0.5, 0.95),
        f"the first step has {share:.0%} of the peak lr",
        onset=case.start,
        share=share,
    )


@finding("lr.warms_up", "Heuristic: starts below 50 to 10 % of its peak and rises", is_context=True)
def warms_up(case: Case) -> Graded | None:
    """The lr rises over the first steps."""
    known = _known(case)
    if len(known) < ENOUGH or known.max() <= 0:
        return None
    share = float(known[0] / known.max())
    peak = int(np.argmax(known))
    return graded(
        ramp(share, 0.5, 0.1) if peak > 1 else 0.0,
        f"the lr rises from {share:.0%} of its peak over {peak} rows",
        rows=peak,
    )


@finding("lr.constant", "definition", is_context=True)
def constant(case: Case) -> Graded | None:
    """The lr is the same on every step."""
    known = _known(case)
    if len(known) < ENOUGH:
        return None
    same = bool(np.ptp(known) <= 1e-6 * known.max())
    return graded(1.0 if same else 0.0, f"the lr is {float(known[0]):.3g}", lr=float(known[0]))
