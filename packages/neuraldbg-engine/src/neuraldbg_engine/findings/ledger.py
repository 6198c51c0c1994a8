# SPDX-License-Identifier: LicenseRef-Proprietary
"""What the training loop did, by its ledger: facts, exact to the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.schema.facts import ActivationStat
from neuraldbg_engine.findings.case import middle
from neuraldbg_engine.findings.finding import Graded, finding, graded, log_ramp, ramp

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case, Flags

FEW = 3


def _share(
    case: Case, flags: Flags, says: str, *, zero: float = 0.05, one: float = 0.5
) -> Graded | None:
    """Grade by the share of steps with a backward on which the flag is up.

    Args:
        case: The run.
        flags: `[T]`.
        says: The finding in words, with `{share}` in the place of that share.
        zero: Share up to which the grade is 0.
        one: Share from which it is 1.
    """
    worked = case.worked
    if worked.sum() < FEW:
        return None
    hits = flags & worked
    share = float(hits.sum() / worked.sum())
    return graded(
        ramp(share, zero, one),
        says.format(share=f"{share:.0%}"),
        onset=case.since(hits),
        share=share,
    )


def _in_eval_mode(case: Case) -> Flags:
    """Return on which steps all training forwards ran in eval mode, `[T]`."""
    forwards = case.view.ledger("forwards")
    flags = (case.view.ledger("eval_mode_forwards") >= forwards) & (forwards > 0)
    return np.asarray(flags, dtype=np.bool_)


@finding(
    "ledger.not_cleared", "ledger of calls; Heuristic: 5 to 50 % of the steps, so that one is none"
)
def not_cleared(case: Case) -> Graded | None:
    """A step's first backward found gradients of the step before."""
    flags = case.view.ledger("is_cleared") < 0.5
    flags[:1] = False
    return _share(case, flags, "gradients were not cleared on {share} of the steps")


@finding("ledger.cleared_before_step", "ledger of calls; Heuristic: 5 to 50 % of the steps")
def cleared_before_step(case: Case) -> Graded | None:
    """Gradients that a backward had produced were gone when the optimizer stepped."""
    flags = case.view.ledger("is_cleared_before_step") > 0
    return _share(case, flags, "gradients were gone before the step on {share} of the steps")


@finding("ledger.no_step", "ledger of calls; Heuristic: 50 to 95 % of the steps")
def no_step(case: Case) -> Graded | None:
    """Backward ran and no optimizer stepped."""
    view = case.view
    idle = (view.ledger("steps") == 0) & (view.ledger("skipped") == 0)
    idle &= ~np.asarray(case.trace.facts.interrupted)
    says = "on {share} of the steps with a backward no optimizer stepped"
    return _share(case, idle, says, zero=0.5, one=0.95)


@finding(
    "ledger.skipped", "a gradient scaler skips now and then; Heuristic: 10 to 50 % of the steps"
)
def skipped(case: Case) -> Graded | None:
    """Optimizer steps are skipped again and again."""
    flags = case.view.ledger("skipped") > 0
    if case.rows < 10:
        return None
    share = float(flags.mean())
    return graded(
        ramp(share, 0.1, 0.5),
        f"{share:.0%} of the steps were skipped",
        onset=case.since(flags),
        share=share,
    )


@finding(
    "ledger.scale_falls", "a scaler settles after a few halvings; Heuristic: 4 to 12 net halvings"
)
def scale_falls(case: Case) -> Graded | None:
    """The loss scale is halved again and again."""
    scale = case.view.ledger("loss_scale")
    known = np.flatnonzero(np.isfinite(scale) & (scale > 0))
    if len(known) < FEW:
        return None
    top = float(scale[known].max())
    halvings = float(np.log2(top / scale[known[-1]]))
    flags = np.nan_to_num(scale, nan=top) < top
    return graded(
        ramp(halvings, 4, 12),
        f"the loss scale fell from {top:.3g} to {float(scale[known[-1]]):.3g}",
        onset=case.since(flags),
        halvings=halvings,
    )


@finding("ledger.clipped_after_step", "ledger of calls; Heuristic: 5 to 50 % of the steps")
def clipped_after_step(case: Case) -> Graded | None:
    """Gradients are clipped after the optimizer has used them."""
    flags = case.view.ledger("is_clipped_after_step") > 0
    return _share(case, flags, "clipping came after the step on {share} of the steps")


@finding("ledger.clipped_scaled", "ledger of calls; Heuristic: 5 to 50 % of the steps")
def clipped_scaled(case: Case) -> Graded | None:
    """Gradients are clipped while still multiplied by the loss scale."""
    flags = case.view.ledger("is_clipped_scaled") > 0
    return _share(case, flags, "clipping acted on scaled gradients on {share} of the steps")


@finding("ledger.eval_mode", "ledger of calls; Heuristic: 30 to 90 % of the steps")
def eval_mode(case: Case) -> Graded | None:
    """Training forwards run in eval mode."""
    says = "{share} of the training steps run in eval mode"
    return _share(case, _in_eval_mode(case), says, zero=0.3, one=0.9)


@finding("ledger.eval_mode_begins", "ledger of calls; Heuristic: after some steps in train mode")
def eval_mode_begins(case: Case) -> Graded | None:
    """Training forwards change from train mode to eval mode and stay there."""
    view, flags = case.view, _in_eval_mode(case)
    if case.worked.sum() < 5 or not flags.any():
        return graded(0.0) if case.worked.sum() >= 5 else None
    row = int(np.flatnonzero(flags)[0])
    after = float(flags[row:].mean())
    return graded(
        ramp(after, 0.7, 0.95) if row > 2 else 0.0,
        f"from step {view.label(row)} on training runs in eval mode",
        onset=case.at(row),
        share_after=after,
    )


@finding("ledger.train_mode_in_eval", "ledger of calls; Heuristic: 30 to 90 % of the evaluations")
def train_mode_in_eval(case: Case) -> Graded | None:
    """Forwards without gradients run in train mode."""
    evals = case.view.ledger("eval_forwards")
    wrong = case.view.ledger("train_mode_eval_forwards")
    total = float(np.nansum(evals))
    if total < 1:
        return None
    share = float(np.nansum(wrong)) / total
    return graded(
        ramp(share, 0.3, 0.9),
        f"{share:.0%} of the forwards without gradients ran in train mode",
        onset=case.since(wrong > 0),
        share=share,
    )


@finding(
    "ledger.accumulates",
    "definition: 2 backward passes per step; Heuristic: 1.5 to 2",
    is_context=True,
)
def accumulates(case: Case) -> Graded | None:
    """Several backward passes add up before each optimizer step."""
    if case.worked.sum() < FEW:
        return None
    passes = middle(case.view.ledger("backwards")[case.worked])
    several = len(case.view.run.optimizers) > 1
    return graded(
        ramp(passes, 1.2, 2.0) * (0.5 if several else 1.0),
        f"{passes:.0f} backward passes a step",
        passes=passes,
    )


@finding("ledger.norm_grows_with_passes", "Heuristic: k passes give 0.6 to 0.9 of k times the norm")
def norm_grows_with_passes(case: Case) -> Graded | None:
    """Capture saw the gradient grow in proportion to the passes: the loss is not divided."""
    notes = case.view.observations.get("accumulation_unscaled", [])
    if case.worked.sum() < FEW:
        return None
    if not notes:
        return graded(0.0)
    passes = float(notes[0].figures.get("backwards", 2.0))
    return graded(
        max(float(notes[0].figures.get("confidence", 0.85)), 0.5),
        f"{passes:.0f} backward passes add up undivided",
        onset=case.at(case.view.row_at(notes[0].step)),
        passes=passes,
    )


@finding("ledger.interrupted", "definition: an exception ended the run", is_context=True)
def interrupted(case: Case) -> Graded | None:
    """The user's own exception ended the run."""
    if case.trace.exception is None:
        return graded(0.0)
    return graded(1.0, f"it ended with {case.trace.exception[:60]}", steps=case.trace.step_count)


@finding("ledger.several_calls", "Heuristic: 1.5 to 3 calls a step", is_context=True)
def several_calls(case: Case) -> Graded | None:
    """Layers run several times within one step: a loop over time, or a shared module."""
    calls = case.activation(ActivationStat.CALLS)
    if not calls.size or np.isnan(calls).all():
        return None
    often = middle(case.late("activation", ActivationStat.CALLS))
    return graded(
        log_ramp(max(often, 0.1), 1.5, 3.0), f"the median layer runs {often:.0f} times", calls=often
    )
