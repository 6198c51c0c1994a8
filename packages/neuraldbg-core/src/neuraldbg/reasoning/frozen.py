# SPDX-License-Identifier: MIT
"""Whether what is frozen was meant to be, and whether a freeze within the run did harm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.causes.adapter_scale_too_high import adapters, has_low_rank_pair
from neuraldbg.schema.facts import ParameterStat

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.run import ParameterInfo

ENOUGH_FROZEN = 60
"""Steps before a run that has not learned says anything about what is frozen."""


def is_undeclared(view: CaseView) -> bool:
    """For frozen parameters: where nothing says that they are frozen on purpose.

    Adapters are there to be trained alone, parts that are thawed within the run were frozen for a
    while, and a backbone under a head that learns is the usual way to fine-tune. A short run shows
    none of this.
    """
    if len(view.curve) < ENOUGH_FROZEN or adapters(view) or has_low_rank_pair(view):
        return False
    layers = {note.layer or "" for note in view.observations.get("frozen_parameters", [])}
    if _is_thawed(view, layers):
        return False
    if view.curve.progress < FITTED and _is_left_random(view, layers):
        return True
    if view.curve.learned:
        return False
    return not (_is_backbone(view, layers) and _falls(view, layers))


MOST = 0.5
"""Share of all parameters that is left frozen from which on the rest cannot make up for it."""
UNDONE = 3.0
"""Last loss over its level before the freeze. Heuristic: what is frozen on purpose keeps what was
learned within tens of percent."""
LEVEL_OF = 20
"""Losses that say what had been reached."""


def cannot_follow(view: CaseView) -> bool:
    """For what was frozen within the run, held by an optimizer: what came later was not learned.

    Stages that are frozen on purpose end no worse than they were, or on a task that is learned.
    """
    notes = view.observations.get("frozen_midway", ())
    thawed = {note.layer for note in view.observations.get("thawed", ())}
    layers = {note.layer for note in notes} - thawed
    meant = {p.layer for p in view.run.parameters if p.name in view.held and p.layer in layers}
    if not meant or max(note.figures.get("share", 0.0) for note in notes) < MOST:
        return False
    curve = view.curve
    at = int(np.searchsorted(curve.steps, min(n.step for n in notes if n.layer in meant)))
    if at < LEVEL_OF or curve.is_signed or curve.progress >= FITTED:
        return False
    return curve.end > UNDONE * curve.level(at - LEVEL_OF, at) > 0


FITTED = 0.9
"""Progress from which random features are enough for the task."""
ROOT_3 = 3**0.5
"""Largest over root mean square of numbers drawn evenly from [-a, a]."""
ROUND = 0.06
"""Share by which that may differ: both are taken of a sample. Heuristic."""
DRAWN = 256
"""Numbers from which a sample shows how it was drawn. Heuristic: the largest of so many lies within
1 % of the bound, while that of trained (bell-shaped) weights lies at 2.5 to 4 times their RMS."""


def _is_left_random(view: CaseView, layers: set[str]) -> bool:
    """Whether frozen layers still hold what they were drawn with, to no good.

    Nothing was ever learned there, so there is nothing to keep: a freeze that was left behind,
    where the optimizer was given them, or where what is trained on top learns next to nothing.
    """
    largest = view.parameter(ParameterStat.WEIGHT_MAX)
    rms = view.parameter(ParameterStat.WEIGHT_RMS)
    told = []
    for row, one in enumerate(view.run.parameters):
        size = int(np.prod(one.shape))
        if one.layer not in layers or one.is_trainable or len(one.shape) < 2 or size < DRAWN:
            continue
        shape = float(view.early(largest[:, row])) / max(float(view.early(rms[:, row])), 1e-30)
        is_held = one.name in view.held and abs(shape / ROOT_3 - 1) < ROUND
        told.append(is_held or (view.curve.is_poor and _is_default(one)))
    return bool(told) and all(told)


def _is_default(parameter: ParameterInfo) -> bool:
    """Whether a weight began as torch draws it: evenly, with a variance of 1 / (3 fan-in).

    Within four standard errors: that of the RMS of n even draws is 1 / sqrt(5 n) of it.
    """
    drawn = 1 / math.sqrt(3 * max(math.prod(parameter.shape[1:]), 1))
    error = 4 / math.sqrt(5 * max(math.prod(parameter.shape), 1))
    return abs(parameter.initial_rms / drawn - 1) < max(error, ROUND)


def _is_thawed(view: CaseView, layers: set[str]) -> bool:
    """Whether any parameter of these layers that was frozen at first got a gradient or moved."""
    rows = [i for i, p in enumerate(view.run.parameters) if p.layer in layers]
    norm = view.parameter(ParameterStat.GRAD_NORM)[:, rows]
    moved = view.parameter(ParameterStat.UPDATE_RMS)[:, rows]
    began = (np.nan_to_num(norm[:1]) > 0).any(axis=0)
    thawed = np.any((np.nan_to_num(norm) > 0) | (np.nan_to_num(moved) > 0), axis=0)
    return bool(np.any(thawed & ~began))


def _is_backbone(view: CaseView, layers: set[str]) -> bool:
    """Whether all layers with parameters up to some depth are frozen, and none after it."""
    owners = {p.layer for p in view.run.parameters}
    frozen = [x.path in layers for x in view.flow.executed if x.path in owners]
    return any(frozen) and not all(frozen) and frozen == sorted(frozen, reverse=True)


def _falls(view: CaseView, layers: set[str]) -> bool:
    """Whether the head learns: beyond noise, and clearly where the optimizer was given all.

    An optimizer that holds what is frozen was meant to train it.
    """
    curve = view.curve
    names = {p.name for p in view.run.parameters if p.layer in layers}
    if names & view.held and curve.is_poor:
        return False
    return bool(curve.start - curve.end > 3 * curve.noise / np.sqrt(max(curve.width, 1)))
