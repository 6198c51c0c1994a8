# SPDX-License-Identifier: MIT
"""Learning rate too high: steps move the weights by too large a share, and the loss shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.schedule import lr_climb
from neuraldbg.reasoning.sharpness import lr_times_sharpness
from neuraldbg.reasoning.symptoms import (
    broke_at_once,
    dead_layers,
    departure_row,
    lr_leap,
    replaced_row,
)
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.symptoms import Leap
    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.events import SemanticEvent

LARGE_STEP = 0.03
"""Update / weight RMS per step. Karpathy's rule of thumb is 1e-3 and DeepDiagnosis alarms above
1e-1; thirty times the former is far outside what healthy runs sustain."""
HUGE_STEP = 0.1
REPLACING = 0.5
"""The same of a first step after which half of a weight is the step's. Heuristic: Adam at lr 0.01
moves weights of torch's default size (about 0.1) by a tenth."""
ADVERSE = frozenset(
    {"dying_relu", "unknown", "discriminator_overpowers", "mode_collapse", "saturating_activations"}
)
EDGE = 2.0
"""lr x sharpness at which gradient descent stops converging (Cohen et al. 2021)."""
EDGE_STEPS = 10
ENOUGH_STEPS = 30
"""Steps that a loss needs to show that it does not settle: in fewer it is noise, or still on its
way. A loss that breaks or runs away needs none."""
RUNAWAY = 10.0
ABOVE = 1.2
"""Level of a loss that is thrown about over its origin. Noise alone stays around it."""


def assess(view: CaseView) -> Assessment | None:
    """Compare step sizes before the symptom with what weights can bear."""
    curve = view.curve
    if not curve:
        return None
    leap = lr_leap(view)
    if leap is not None or len(view.run.models) > 1:
        return _overrun(view) if leap is None else _leapt(view, leap)
    if not view.is_failing or (is_policy(view) and not view.is_broken):
        return None
    row = departure_row(view)
    if row is not None and replaced_row(view, row - 1, row + 1) is not None:
        return None
    climb = lr_climb(view, row)
    if climb is not None:
        return _raised(view, climb, "the loss left its level for good", lasts=True)
    return _too_large(view, row)


def _too_large(view: CaseView, row: int | None) -> Assessment | None:
    """Judge steps by their size, and by the loss that left on `row` or never settled."""
    curve = view.curve
    dead = dead_layers(view, 0.9)
    if any(d.is_from_start for d in dead):
        dead = []
    symptom = curve.is_diverged or _rise(view) > 1.5 or bool(dead) or _swings(view)
    largest = _largest_step(view, row)
    sharp = _overshoot(view, row)
    if not _is_evident(view, max(largest, LARGE_STEP * (sharp > EDGE)), symptom=symptom):
        return None
    confidence = 0.15
    confidence += 0.2 if largest > HUGE_STEP else 0.1 if largest > LARGE_STEP else 0.0
    confidence += 0.15 if sharp > EDGE else 0.0
    confidence += 0.35 if symptom else 0.0
    confidence += 0.1 if curve.is_diverged and _rise(view) > 3 else 0.0
    if _is_steep(view):
        confidence *= 0.5
    onset_row = _onset(view, row)
    onset = view.label(onset_row)
    lr = float(view.lr[onset_row]) if np.isfinite(view.lr[onset_row]) else float("nan")
    what = "the loss diverged" if curve.is_diverged else "the loss never settled"
    if sharp > EDGE:
        what = f"lr times sharpness was {figure(sharp)} (stable below 2), and {what}"
    if dead:
        what = f"units of {dead[0].layer.path!r} were pushed out of reach and died"
    evidence = _evidence(view, onset)
    return Assessment(
        cause="lr_too_high",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=confidence,
        description=(
            f"Learning rate too high at step {onset}: with lr {figure(lr)} one step moved the "
            f"weights by {100 * largest:.3g} % of their size (usual: about 0.1 %), and {what}."
        ),
        onset=onset,
        onset_range=(onset, max(onset, view.label(row) if row is not None else onset)),
        evidence=evidence,
        chain=(
            link(
                None, onset, f"lr {figure(lr)} makes steps of {100 * largest:.3g} % of the weights"
            ),
            link(None, view.label(row) if row is not None else onset, what),
        ),
        explains=frozenset({"dying_relu", "unknown", "labels_unrelated_to_inputs"}),
    )


def _overrun(view: CaseView) -> Assessment | None:
    """Look, where several models train against each other, for one that its first steps replace.

    Losses of adversaries tell nothing, but no weights are worth keeping that one step outweighs.
    """
    for model in view.run.models:
        own = [
            i
            for i, row in enumerate(view.matrix_rows)
            if view.run.parameters[row].name.startswith(f"{model}.")
        ]
        ratio = quiet(np.nanmedian, view.update_ratio[:, own], axis=1) if own else np.zeros(0)
        rows = np.flatnonzero(np.isfinite(ratio) & (ratio > 0))[:6]
        if len(rows) < 3 or not (ratio[rows[0]] > REPLACING and np.median(ratio[rows]) > HUGE_STEP):
            continue
        first = next((x.path for x in view.flow.weighted if x.model == model), None)
        step, lr = view.label(int(rows[0])), float(view.lr[rows[0]])
        return Assessment(
            cause="lr_too_high",
            failure=FailureType.OPTIMIZER_INSTABILITY,
            confidence=0.85,
            description=(
                f"Learning rate too high at step {step}: with lr {figure(lr)} the first step moved "
                f"the weights of {model!r} by {100 * float(ratio[rows[0]]):.3g} % of their size "
                "(usual: about 0.1 %), so nothing of how they started is left."
            ),
            layer=first,
            onset=step,
            onset_range=(step, view.label(int(rows[-1]))),
            evidence=_evidence(view, step),
            chain=(
                link(first, step, f"a step of lr {figure(lr)} outweighs the weights themselves"),
                link(None, step, "units saturate or die, and the other side has nothing to judge"),
            ),
            explains=ADVERSE,
        )
    return None


def _largest_step(view: CaseView, departure: int | None) -> float:
    """Return the update ratio at the start or before the loss left, whichever is larger."""
    usual = [float(quiet(np.nanmedian, view.step_size[:6]))]
    if departure is not None:
        usual.append(
            float(quiet(np.nanmedian, view.step_size[max(0, departure - 6) : departure + 1]))
        )
    return float(np.nanmax(usual)) if np.isfinite(usual).any() else 0.0


def _overshoot(view: CaseView, departure: int | None) -> float:
    """Return lr x sharpness before the loss left, or of the first steps; 0 where it is unknown."""
    sharp = lr_times_sharpness(view)
    until = len(sharp) if departure is None or departure < EDGE_STEPS else departure + 1
    known = sharp[:until][np.isfinite(sharp[:until])]
    known = known[:EDGE_STEPS] if departure is None else known[-EDGE_STEPS:]
    return float(np.median(known)) if len(known) >= 3 else 0.0


def _is_evident(view: CaseView, largest: float, *, symptom: bool) -> bool:
    """Whether the loss shows instability, over enough steps, and steps are large enough for it."""
    curve = view.curve
    if not symptom and not (curve.is_stuck and _is_above(view)):
        return False
    if len(curve) < ENOUGH_STEPS and not (view.is_broken or _runs_away(view)):
        return False
    if largest <= 1.0 and broke_at_once(view):
        return False
    return largest >= LARGE_STEP or (curve.is_diverged and largest > LARGE_STEP / 3)


def _leapt(view: CaseView, leap: Leap) -> Assessment:
    """Report an lr that rose above all before, and a loss that answered at once."""
    lasts = view.is_failing
    what = (
        "the loss stopped being finite"
        if not np.isfinite(leap.ratio)
        else f"the loss rose to {figure(leap.ratio)} times its level"
    )
    return _raised(view, leap, what, lasts=lasts or leap.ratio > 10)


def _raised(view: CaseView, leap: Leap, what: str, *, lasts: bool) -> Assessment:
    """Return the assessment of an lr above all with which the run had learned."""
    step = view.label(leap.row)
    raised = f"the lr rose from {figure(leap.before)} to {figure(leap.after)}"
    return Assessment(
        cause="lr_too_high",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.9 if lasts else 0.6,
        description=(
            f"Learning rate too high at step {step}: {raised}, above all before, and within the "
            f"next steps {what}."
        ),
        onset=step,
        onset_range=(step, step + 1),
        evidence=_evidence(view, step),
        chain=(link(None, step, raised), link(None, step + 1, what)),
        explains=frozenset(
            {
                "dying_relu",
                "unknown",
                "labels_unrelated_to_inputs",
                "missing_gradient_clipping",
                "stale_second_moment",
                "target_outlier",
                "saturating_activations",
                "half_precision_overflow",
                "loss_scale_collapse",
            }
        ),
        is_direct=True,
    )


def _evidence(view: CaseView, onset: int) -> tuple[SemanticEvent, ...]:
    """Return what shows the symptom: the loss's own states from the onset on come first."""
    kind = ["optimizer_instability"]
    found = [
        event
        for state in ("diverging", "loss_spike")
        for event in view.events(types=kind, state=state, most=8)
        if event.step >= onset - 1
    ][:2]
    others = view.events(types=["optimizer_instability", "gradient_health_transition"], most=3)
    ids = {event.id for event in found}
    return (*found, *(event for event in others if event.id not in ids))[:4]


def _is_above(view: CaseView) -> bool:
    """Whether the loss stays clearly above where it began (or what a constant answer scores)."""
    curve = view.curve
    if curve.is_signed or not len(curve.finite):
        return False
    tail = curve.finite[len(curve.finite) // 2 :]
    above = float(np.median(tail)) - ABOVE * abs(curve.origin)
    return bool(above > 2 * curve.noise / np.sqrt(len(tail)))


def _runs_away(view: CaseView) -> bool:
    """Whether a short loss left its start by so much that no noise of batches does it."""
    curve = view.curve
    return curve.is_diverged and curve.end > RUNAWAY * max(abs(curve.start), 1e-12)


def _is_steep(view: CaseView) -> bool:
    """Whether gradients were huge before the first update: no lr can have made them so."""
    total = view.gradient_total
    huge = view.trace.settings.threshold_exploding
    return len(total) > 0 and bool(total[0] > huge) and not view.is_adaptive


def _rise(view: CaseView) -> float:
    """Return the highest of the first losses after an update over the very first loss."""
    finite = view.curve.finite
    if len(finite) < 3 or view.curve.is_signed or finite[0] <= 0:
        return 1.0
    top = float(np.max(finite[1:12]))
    if top - finite[0] < 6 * view.curve.noise:
        return 1.0
    return float(top / finite[0])


def _swings(view: CaseView) -> bool:
    """Whether the late loss jumps up and down from step to step by half its level."""
    tail = view.curve.finite[len(view.curve.finite) // 2 :]
    swings = len(tail) > 20 and view.curve.noise > 0.5 * abs(float(np.median(tail)))
    return swings and _is_above(view)


def _onset(view: CaseView, departure: int | None) -> int:
    """The step from which the lr was in force: the start, or where it rose before the departure."""
    if departure is None or departure < 30 or _is_never_better(view, departure):
        return 0
    lr = view.lr[: departure + 1]
    if not np.isfinite(lr).any():
        return departure
    now = lr[-1]
    lower = np.flatnonzero(lr < 0.5 * now)
    if len(lower):
        return int(min(lower[-1] + 1, departure))
    if view.curve.level(max(0, departure - 10), departure) > 0.8 * view.curve.start:
        return 0
    return departure


def _is_never_better(view: CaseView, departure: int) -> bool:
    """Whether the loss had never fallen below its origin before it left for good."""
    curve = view.curve
    index = int(np.searchsorted(curve.steps, view.label(departure)))
    before = curve.smooth[:index]
    known = before[np.isfinite(before)]
    return len(known) > 0 and float(np.median(known)) > abs(curve.origin)


def is_policy(view: CaseView) -> bool:
    """Whether the loss is a policy's: it measures no error, and stays near 0 however good it is.

    So is an actor's and its critic's together: the critic's squared error alone has no sign.
    """
    objective = view.objective
    is_actor_critic = objective.is_squared and view.curve.is_signed
    return objective.is_policy and (is_actor_critic or not objective.is_supervised)
