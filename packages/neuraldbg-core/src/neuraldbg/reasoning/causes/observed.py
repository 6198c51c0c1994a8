# SPDX-License-Identifier: MIT
"""Causes that capture saw directly: a call or a structure. The fault is the evidence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.causes import vocabulary, words
from neuraldbg.reasoning.cause import Assessment, link, named
from neuraldbg.reasoning.kinds import KINDS, Known, always
from neuraldbg.reasoning.particulars import particulars
from neuraldbg.schema.facts import ActivationStat, GradState, ParameterStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.facts import Observation

UNSURE = 0.5
"""Below this capture says that it may be meant: no hypothesis by itself."""
CONFIRMED_WITHIN = 40
"""Capture confirms a structural fault over a few steps before it tells: it acts from step 0 on."""


AUDITED = frozenset(
    {
        "broadcast_loss",
        "custom_gradient",
        "detached_term",
        "negative_term",
        "padding_dominates",
        "probabilities_into_cross_entropy",
        "probabilities_into_logits_loss",
        "scores_into_probability_loss",
        "softmax_dim",
        "sum_reduction",
        "temperature",
        "unopposed_log_scale",
    }
)
"""Kinds that only an audit of the loss shows."""
FIRST_AUDITS, AUDIT_GAP, AUDITS_IN_A_ROW = 8, 64, 4
"""Steps that are audited at first, the gap to the next one (each later one is twice as long), and
how many steps one takes."""


IN_MID_RUN = frozenset(
    {"fresh_moments", "frozen_midway", "parameter_not_in_optimizer", "replaced_layer_unowned"}
)
"""Kinds whose step is the one on which they began, however early."""


def assess(view: CaseView) -> list[Assessment]:
    """Return one assessment per kind of observation (and cause) whose evidence counts."""
    found: dict[str, Assessment] = {}
    for kind, notes in view.observations.items():
        known = KINDS.get(kind) or _by_cause(kind, notes[0])
        if known is None or not known.is_due(view):
            continue
        if kind == "gradient_absent":
            notes = [note for note in notes if _is_cut_off(view, note)]  # noqa: PLW2901
        for note in sorted(notes, key=lambda n: (n.step, view.flow.place.get(n.layer or "", 0))):
            assessment = _one(view, kind, known, note, len(notes))
            if assessment.confidence < UNSURE:
                continue
            best = found.get(assessment.cause)
            if best is None or assessment.confidence > best.confidence:
                found[assessment.cause] = assessment
    return list(found.values())


def _is_cut_off(view: CaseView, note: Observation) -> bool:
    """Whether a layer ran on most steps and its parameters (nearly) never got a gradient.

    An expert that is not chosen, or a head that is not used yet, gets none either: it did not run.
    """
    row = view.flow.row.get(note.layer or "")
    if row is None or not len(view.steps):
        return True
    calls = view.activation(ActivationStat.CALLS)[:, row]
    ran = calls[np.isfinite(calls)] > 0  # nobody counts on thinned steps
    if not ran.any():
        return _ran_unseen(view, note.layer or "")
    own = [i for i, p in enumerate(view.run.parameters) if p.layer == note.layer and p.is_trainable]
    state = view.parameter(ParameterStat.GRAD_STATE)[:, own]
    # Steps that a scaler skipped, and optimizers that step in the backward pass, tell nothing.
    known = (np.isfinite(state) & (state != GradState.NOT_STEPPED)).any(axis=1)
    absent = (state == GradState.NONE).all(axis=1)[known]
    return bool(len(ran) and ran.mean() > 0.5 and (not len(absent) or absent.mean() > 0.9))


def _ran_unseen(view: CaseView, path: str) -> bool:
    """Whether a layer that was never heard ran without gradients, below the first that was.

    So it is where that one reads what no input of the model has, and the silent layers make. An
    optimizer was given their parameters, so they were meant to learn; a trained backbone was not.
    """
    own = [p for p in view.run.parameters if p.layer == path]
    if not view.flow.weighted or "pretrained" in view.observations:
        return False
    if not own or not all(p.name in view.held for p in own):
        return False
    first = view.flow.weighted[0]
    places = {p.layer: place for place, p in enumerate(view.run.parameters)}
    given = {math.prod(each.shape[at:]) for each in view.run.inputs for at in range(1, 4)}
    given |= {size for each in view.run.inputs for size in each.shape[1:]}
    absent = {note.layer for note in view.observations["gradient_absent"]}
    makes = {p.shape[0] for p in view.run.parameters if p.layer in absent and len(p.shape) > 1}
    is_below = places[path] < places.get(first.path, -1)
    return is_below and first.fan_in in makes - given


ELSEWHERE = frozenset(
    {
        "nonfinite_birth",
        "nonfinite_input",
        "nonfinite_parameter",
        "nonfinite_unlocated",
        "no_optimizer_step",
        "optimizer_stopped",
        "gradients_not_cleared",
        "cleared_before_step",
        "clipped_after_step",
        "clipped_scaled",
        "accumulation_unscaled",
        "eval_mode_in_training",
        "train_mode_in_eval",
        "rank_divergence",
        "statistics_moved",
        "wrapper_bypassed",
    }
)
"""Kinds that causes of their own judge over the whole run."""


def _by_cause(kind: str, note: Observation) -> Known | None:
    """Return how to read a kind that is new here: by the cause that capture names."""
    cause = note.words.get("cause", "")
    if kind in ELSEWHERE or cause not in vocabulary().causes:
        return None
    failure = FailureType(vocabulary().cause(cause).failures[0])
    return Known(cause, failure, "capture observed " + kind.replace("_", " ") + " in {where}")


def _one(view: CaseView, kind: str, known: Known, note: Observation, count: int) -> Assessment:
    cause = note.words.get("cause", known.cause)
    if cause not in vocabulary().causes:
        cause = known.cause
    confidence = float(note.figures.get("confidence", known.prior))
    if known.is_due is not always and confidence >= UNSURE:
        confidence = max(confidence, known.prior)
    layer = _container(view, note.layer) if kind == "unregistered_module" else note.layer
    if kind == "detached_term" and layer is None:
        layer = _idle_head(view)
    where = named(layer)
    sentence = known.sentence.format(where=where)
    more = f" ({count} such places)" if count > 1 else ""
    told = particulars(note)
    details = f" ({told})" if told else ""
    failure = known.failure
    listed = vocabulary().cause(cause).failures
    if str(failure) not in listed:
        failure = FailureType(listed[0])
    evidence = tuple(
        e
        for e in view.trace.events
        if e.evidence.get("kind") == kind and e.step == note.step and e.layer == note.layer
    )[:3]
    title = words(cause).capitalize()
    is_exact = note.step > CONFIRMED_WITHIN or kind in IN_MID_RUN
    onset = note.step if is_exact else view.label(0)
    earliest = onset
    if onset > CONFIRMED_WITHIN and kind in AUDITED:
        earliest, onset = _began(view, note.step)
    return Assessment(
        cause=cause,
        failure=failure,
        confidence=min(max(confidence, 0.0), 0.98),
        description=f"{title} at step {onset}: {sentence}{more}{details}.",
        layer=layer,
        onset=onset,
        onset_range=(earliest, note.step),
        evidence=evidence,
        chain=(link(layer, onset, sentence, evidence[0].id if evidence else None),),
        explains=SYMPTOMATIC | known.explains,
        is_direct=True,
    )


def _began(view: CaseView, seen: int) -> tuple[int, int]:
    """Return from which step on a fault can have acted that an audit saw, and where it seems to.

    Audits come at growing gaps. Something else is asked for from the step on which the loss leaves
    its band at once; where it never does, the step is that of the audit.
    """
    gap, earliest = AUDIT_GAP, FIRST_AUDITS
    while earliest + gap < seen - AUDITS_IN_A_ROW:
        earliest += gap
        gap *= 2
    turn = view.curve.turn(earliest, seen + 1)
    return earliest, seen if turn is None else turn


def _idle_head(view: CaseView) -> str | None:
    """Return the one head that gets no gradient: the term that was cut is computed from it."""
    absent = [n.layer or "" for n in view.observations.get("gradient_absent", ())]
    heads = [path for path in dict.fromkeys(absent) if not view.flow.children(path)]
    return heads[0] if len(heads) == 1 else None


def _container(view: CaseView, path: str | None) -> str | None:
    """Return the plain list or dict that holds what is not registered: there the fault is."""
    outer = (path or "").rpartition(".")[0]
    parents = {layer.path.rpartition(".")[0] for layer in view.run.layers}
    return outer if outer and outer not in view.flow.row and outer not in parents else path


SYMPTOMATIC = frozenset(
    {
        "lr_too_high",
        "lr_too_low",
        "dying_relu",
        "saturating_activations",
        "labels_unrelated_to_inputs",
        "missing_gradient_clipping",
        "missing_warmup",
        "embedding_collapse",
        "deep_without_residual",
        "recurrent_vanishing",
        "discriminator_overpowers",
        "mode_collapse",
        "unknown",
    }
)
"""Causes read from the shape of the run, which a fault seen directly would shape too."""
