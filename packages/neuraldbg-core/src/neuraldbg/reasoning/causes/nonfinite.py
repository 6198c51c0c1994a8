# SPDX-License-Identifier: MIT
"""Births of NaN and Inf: the operation that made the first one, as the microscope found it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.causes import UNKNOWN, vocabulary, words
from neuraldbg.reasoning.cause import Assessment, link, named
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import Observation

KINDS = ("nonfinite_birth", "nonfinite_parameter", "nonfinite_unlocated")
RUNAWAY = 100.0
"""Growth of the loss before the birth from which the birth is the end of a divergence, not its
cause: two orders of magnitude above where the run started."""
PHASES = {
    "forward": "in the forward pass of {where}",
    "backward": "in the backward pass of {where}",
    "loss": "in the loss",
    "optimizer": "in the optimizer step of {where}",
}
SCALE_FREE = frozenset(
    {"half_precision_overflow", "optimizer_eps_underflow", "noise_schedule_invalid"}
)


def first_birth(view: CaseView) -> Observation | None:
    """Return the first birth of a value that is not finite, as capture located it."""
    notes = [note for kind in KINDS for note in view.observations.get(kind, [])]
    return min(notes, key=lambda n: (n.step, KINDS.index(n.kind)), default=None)


def assess(view: CaseView) -> Assessment | None:
    """Name the first birth of a non-finite value that stayed or reached the loss."""
    first = first_birth(view)
    if first is None or not _is_harmful(view):
        return None
    cause = first.words.get("cause", UNKNOWN)
    if cause not in vocabulary().causes:
        cause = UNKNOWN
    confidence = float(first.figures.get("confidence", 0.9 if cause != UNKNOWN else 0.35))
    grown = runaway(view, first.step)
    if grown > RUNAWAY and cause not in SCALE_FREE:
        confidence *= 0.35
    layer = first.layer if first.layer is not None else _read_by_loss(view, first)
    where = named(layer)
    operation = first.words.get("operation", "")
    phase = first.words.get("phase", "")
    argument = first.words.get("argument", "")
    mechanism = first.words.get("mechanism", "")
    place = PHASES.get(phase, "in {where}").format(where=where)
    if phase == "loss" and layer is not None:
        place += f" ({where})"
    if first.kind == "nonfinite_parameter":
        return _brought(view, first, cause, confidence)
    born = f"the first NaN or Inf was born {place}"
    if operation:
        born += f", in operation {operation}"
    if argument or mechanism:
        born += f": {argument or words(mechanism)}"
    if hint := first.words.get("hint"):
        born += f" ({hint})"
    if _may_be_anothers(view, first):
        born = ELSEWHERE
    evidence = _evidence(view, first)
    return Assessment(
        cause=cause,
        failure=_failure(cause, mechanism),
        confidence=min(confidence, 0.97),
        description=f"{_title(cause)} at step {first.step}: {born}.",
        layer=layer,
        onset=first.step,
        onset_range=(first.step, first.step),
        evidence=evidence,
        chain=(
            link(layer, first.step, born, evidence[0].id if evidence else None),
            link(None, first.step, "loss, gradients or weights are not finite from here on"),
        ),
        explains=EXPLAINED if grown <= RUNAWAY else frozenset({UNKNOWN}),
        is_direct=cause != UNKNOWN and grown <= RUNAWAY,
    )


def _brought(view: CaseView, note: Observation, cause: str, confidence: float) -> Assessment:
    """Tell of a parameter that was broken before the step's forward began: no step broke it."""
    name, what = note.words.get("name", ""), note.words.get("argument", "")
    since = (
        "before the first step: by its initialisation, or in the checkpoint it was loaded from"
        if note.step <= view.label(0)
        else "when the step began, before anything was computed from it"
    )
    known = f"parameter {name!r} was already not finite ({what}) {since}"
    return Assessment(
        cause=cause,
        failure=FailureType.NUMERICAL_ERROR,
        confidence=max(confidence, SEEN),
        description=f"{_title(cause)} at step {note.step} in {named(note.layer)}: {known}.",
        layer=note.layer,
        onset=note.step,
        onset_range=(note.step, note.step),
        evidence=_evidence(view, note),
        chain=(
            link(note.layer, note.step, f"parameter {name!r} is not finite before the forward"),
            link(None, note.step, "everything that is computed from it is not finite"),
        ),
        explains=frozenset({"lr_too_high", "missing_gradient_clipping", "dying_relu"}),
        is_direct=True,
    )


def _title(cause: str) -> str:
    return words(cause).capitalize() if cause != UNKNOWN else "Numerical error"


def _evidence(view: CaseView, note: Observation) -> tuple[SemanticEvent, ...]:
    """Return the events of the step on which something was seen not to be finite."""
    events = view.trace.events
    return tuple(
        e for e in events if str(e.event_type) == "numerical_error" and e.step == note.step
    )[:3]


SEEN = 0.85
"""Confidence where the microscope found the parameter broken before the forward: a fact; what broke
it is not known."""
EXPLAINED = frozenset(
    {"lr_too_high", "missing_gradient_clipping", "missing_warmup", "dying_relu", UNKNOWN}
)
ELSEWHERE = (
    "gradients are not finite though this rank's loss is: those of another rank came with the "
    "average, or they were born in the backward pass here; the merged traces of all ranks tell"
)


def _may_be_anothers(view: CaseView, note: Observation) -> bool:
    """Whether one of several ranks found nothing of its own that explains its gradients."""
    run = view.run
    if run.world_size < 2 or run.ranks or note.kind != "nonfinite_unlocated":
        return False
    row = np.flatnonzero(view.curve.steps == note.step)
    is_sound = bool(len(row)) and math.isfinite(float(view.curve.values[row[0]]))
    return note.words.get("phase") == "backward" and is_sound


def _read_by_loss(view: CaseView, note: Observation) -> str | None:
    """Return the one layer that the loss reads in which the birth was; None: not known."""
    if note.words.get("phase") != "loss":
        return None
    told = [
        n for n in view.observations.get("loss_function", ()) if n.layer and n.step <= note.step
    ]
    same = [n for n in told if n.words.get("name") == note.words.get("operation")]
    layers = {n.layer for n in (same or told)}
    return layers.pop() if len(layers) == 1 else None


BROUGHT = frozenset({"nan_in_input", "inf_in_input", "zero_variance_feature"})


def _failure(cause: str, mechanism: str) -> FailureType:
    """Return the failure type: what the batch brought along is no error of the arithmetic."""
    if cause not in BROUGHT and mechanism != "nonfinite_target":
        return FailureType.NUMERICAL_ERROR
    known = vocabulary().causes
    if cause not in known or str(FailureType.NUMERICAL_ERROR) in known[cause].failures:
        return FailureType.NUMERICAL_ERROR
    return FailureType(known[cause].failures[0])


def _is_harmful(view: CaseView) -> bool:
    """Whether it stayed, stopped the run, or reached loss or weights: a skipped step is normal."""
    if view.is_broken or view.trace.exception is not None:
        return True
    if view.curve.broke_at is not None:
        return True
    return view.broken_row is not None and not view.curve.learned


def runaway(view: CaseView, step: int) -> float:
    """Return how far the loss had grown before a step: last finite value / level at the start."""
    curve = view.curve
    before = [
        v for s, v in zip(curve.steps, curve.values, strict=True) if s < step and math.isfinite(v)
    ]
    if len(before) < 2 or curve.is_signed:
        return 1.0
    return float(max(before[-1], before[-2]) / max(abs(before[0]), 1e-12))
