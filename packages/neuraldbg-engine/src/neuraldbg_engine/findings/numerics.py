# SPDX-License-Identifier: LicenseRef-Proprietary
"""NaN and Inf: where the first one was born, and how much room the number formats leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.causes.nonfinite import first_birth, runaway
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import ActivationStat, GradState, ParameterStat
from neuraldbg_engine.findings.case import largest
from neuraldbg_engine.findings.finding import Graded, Look, finding, graded, log_ramp, ramp

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case

FP16_MAX = 65504.0
"""Largest finite number of float16 (IEEE 754)."""


def _born_in(phase: str) -> Look:
    def look(case: Case) -> Graded | None:
        if not case.rows:
            return None
        note = first_birth(case.view)
        if note is None or note.words.get("phase", "") != phase:
            return graded(0.0)
        operation = note.words.get("operation", "") or "an operation that was not found"
        stays = case.view.is_broken or case.trace.exception is not None
        sure = float(note.figures.get("confidence", 0.9))
        return graded(
            sure if stays or case.view.curve.broke_at is not None else 0.4 * sure,
            f"the first value that is not finite was born in {operation}",
            note.layer,
            case.at(case.view.row_at(note.step)),
            operation=operation,
            cause=note.words.get("cause", ""),
        )

    return look


for _phase in ("forward", "loss", "backward", "optimizer"):
    finding(
        f"numerics.born_in_{_phase}",
        "the microscope's re-run of the failing step, with its own confidence",
        meaning=f"The first NaN or Inf was born in the {_phase} from finite numbers.",
    )(_born_in(_phase))


@finding("numerics.born_at_input", "definition: not finite on the step of the batch")
def born_at_input(case: Case) -> Graded | None:
    """The first NaN or Inf entered with a batch."""
    if not case.rows or not case.view.run.inputs:
        return None
    notes = case.view.observations.get("nonfinite_input", [])
    broken = case.view.broken_step
    if not notes or broken is None:
        return graded(0.0)
    first = min(note.step for note in notes)
    return graded(
        ramp(abs(first - broken), 3, 0),
        f"values that are not finite entered at step {first}",
        onset=case.at(case.view.row_at(first)),
        steps_apart=abs(first - broken),
    )


@finding("numerics.after_runaway", "core's nonfinite rule: growth by 100; Heuristic: 10 to 1000")
def after_runaway(case: Case) -> Graded | None:
    """NaN or Inf is the end of a divergence: the loss had grown by orders before."""
    curve, step = case.view.curve, case.view.broken_step
    if not curve:
        return None
    if step is None:
        return graded(0.0)
    times = runaway(case.view, step)
    return graded(
        log_ramp(times, 10.0, 1000.0),
        f"before it broke the loss had grown to {times:.3g} times its start",
        ratio=min(times, 1e30),
    )


@finding(
    "numerics.out_of_the_blue", "Heuristic: the loss at 2 to 0.8 times its usual level just before"
)
def out_of_the_blue(case: Case) -> Graded | None:
    """The run broke from one step to the next, at a loss and gradients as usual."""
    curve, step = case.view.curve, case.view.broken_step
    if not curve or not case.rows:
        return None
    if step is None or not case.view.is_broken:
        return graded(0.0)
    index = int(np.searchsorted(curve.steps, step))
    before, usual = curve.level(index - 3, index), curve.level(index - 30, index - 3)
    if not usual > 0 or not np.isfinite(before):
        return None
    return graded(
        ramp(before / usual, 2.0, 1.2),
        "it came without warning: up to the step before, the loss was at its usual level",
        onset=case.at(case.view.row_at(step)),
        ratio=before / usual,
    )


@finding("numerics.weights_nonfinite", "definition")
def weights_nonfinite(case: Case) -> Graded | None:
    """Weights became NaN or Inf."""
    top = case.parameter(ParameterStat.WEIGHT_MAX)
    rms = case.parameter(ParameterStat.WEIGHT_RMS)
    if not top.size or np.isnan(top).all():
        return None
    seen = np.isfinite(top).any(axis=0)
    bad = np.isinf(top) | (np.isnan(top) & ~np.isnan(rms) & seen)
    if not bad.any():
        return graded(0.0)
    row = int(np.flatnonzero(bad.any(axis=1))[0])
    layer = case.view.run.parameters[int(np.flatnonzero(bad[row])[0])].layer
    return graded(
        1.0,
        f"weights of {layer!r} are not finite from step {case.view.label(row)} on",
        layer,
        case.at(row),
        tensors=int(bad.any(axis=0).sum()),
    )


@finding(
    "numerics.finite_gradient_bad_weight", "definition: what the step made of finite gradients"
)
def finite_gradient_bad_weight(case: Case) -> Graded | None:
    """A step turned finite gradients into weights that are not finite."""
    top = case.parameter(ParameterStat.WEIGHT_MAX)
    state = case.parameter(ParameterStat.GRAD_STATE)
    if not top.size or np.isnan(top).all():
        return None
    sound = np.isfinite(case.parameter(ParameterStat.WEIGHT_RMS)) & (state == GradState.PRESENT)
    bad = ~np.isfinite(top) & sound
    rows = np.flatnonzero(bad.any(axis=1))
    if not len(rows) or np.isinf(case.view.gradient_total[: int(rows[0]) + 1]).any():
        return graded(0.0)
    row = int(rows[0])
    layer = case.view.run.parameters[int(np.flatnonzero(bad[row])[0])].layer
    return graded(
        1.0,
        f"finite gradients gave weights of {layer!r} that are not finite",
        layer,
        case.at(row),
        step=case.view.label(row),
    )


def _is_half(case: Case, dtype: str = "float16") -> bool:
    return any(p.dtype == dtype for p in case.view.run.parameters)


@finding("numerics.half_precision", "definition", is_context=True)
def half_precision(case: Case) -> Graded | None:
    """Weights are float16, or a loss scale is in use: numbers above 65504 overflow."""
    if not case.view.run.parameters:
        return None
    scaled = bool(np.isfinite(case.view.ledger("loss_scale")).any()) if case.rows else False
    share = float(np.mean([p.dtype == "float16" for p in case.view.run.parameters]))
    return graded(
        1.0 if share or scaled else 0.0,
        "weights are float16" if share else "the loss is scaled, as for float16",
        float16_share=share,
        is_scaled=int(scaled),
    )


@finding(
    "numerics.near_half_limit", "largest float16 is 65504 (IEEE 754); Heuristic: 5 to 50 % of it"
)
def near_half_limit(case: Case) -> Graded | None:
    """Outputs come near the largest number of float16, in a run that uses it."""
    scaled = bool(np.isfinite(case.view.ledger("loss_scale")).any()) if case.rows else False
    if not (_is_half(case) or scaled):
        return None
    size = np.fmax(
        np.abs(case.activation(ActivationStat.MAX)), np.abs(case.activation(ActivationStat.MIN))
    )
    tops = quiet(np.nanmax, np.where(np.isfinite(size), size, np.nan), axis=0)
    place, top = largest(tops)
    if place < 0:
        return None
    return graded(
        log_ramp(top / FP16_MAX, 0.05, 0.5),
        f"outputs of {case.view.run.layers[place].path!r} reach {top:.3g}",
        case.view.run.layers[place].path,
        largest=top,
    )


@finding(
    "numerics.half_zeros", "smallest float16 is 6e-8 (IEEE 754); Heuristic: 30 to 80 % exact zeros"
)
def half_zeros(case: Case) -> Graded | None:
    """Gradients of float16 weights are mostly exact zeros, without a loss scale."""
    view = case.view
    half = [i for i in view.matrix_rows if view.run.parameters[i].dtype == "float16"]
    if not half or not case.rows or np.isfinite(view.ledger("loss_scale")).any():
        return None
    shares = case.late("parameter", ParameterStat.GRAD_ZERO_SHARE)[half]
    if np.isnan(shares).all():
        return None
    share = float(np.nanmedian(shares))
    layer = view.run.parameters[half[int(np.nanargmax(shares))]].layer
    return graded(
        ramp(share, 0.3, 0.8),
        f"{share:.0%} of the float16 gradients are exactly 0",
        layer,
        case.start,
        share=share,
    )


@finding(
    "numerics.recovers", "Heuristic: one broken step of many counts fully, a tenth of them not"
)
def recovers(case: Case) -> Graded | None:
    """Values that were not finite came and went: the run goes on."""
    curve = case.view.curve
    if not len(curve):
        return None
    if curve.broke_at is None:
        return graded(0.0)
    share = float((~np.isfinite(curve.values)).mean())
    return graded(
        0.0 if case.view.is_broken else ramp(share, 0.1, 0.02),
        f"{share:.1%} of the losses are not finite, and the run goes on",
        share=share,
    )
