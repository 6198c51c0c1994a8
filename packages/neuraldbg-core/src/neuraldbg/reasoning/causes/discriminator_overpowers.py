# SPDX-License-Identifier: MIT
"""Discriminator overpowers: it is certain of real and made up, and the generator starves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.adversary import roles
from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

CERTAIN = 5.0
"""RMS of the scores (logits) from which real and made up are told apart for sure: a sigmoid of 5 is
0.993."""
BIASED = 0.5 * CERTAIN
"""The same from which the generator begins to starve: a sigmoid of 2.5 is 0.92, which leaves a
minimax loss a twelfth of its gradient."""
LOGISTIC = ("softplus", "bce_with_logits", "bce")
SATURATES = "the generator's minimax loss is flat there"


def assess(view: CaseView) -> Assessment | None:
    """Compare the judge's scores and both sides' gradients, first against last."""
    pair = roles(view)
    if pair is None:
        return None
    generator, judge = pair
    heads = [x for x in view.flow.executed if x.model == judge]
    scores = view.activation(ActivationStat.RMS)[:, view.flow.row[heads[-1].path]]
    weighted = [x for x in heads if x.path in view.flow.matrices]
    if weighted:
        scores = view.activation(ActivationStat.RMS)[:, view.flow.row[weighted[-1].path]]
    certain = float(view.late(scores))
    judge_gradient = _gradient(view, judge)
    fed = _gradient(view, generator)
    with np.errstate(invalid="ignore", divide="ignore"):
        fall = float(view.late(fed) / view.early(fed))
        judge_fall = float(view.late(judge_gradient) / view.early(judge_gradient))
    minimax = _is_minimax(view, judge) and float(quiet(np.nanmedian, scores)) > CERTAIN
    if not minimax and not (certain > CERTAIN and judge_fall < 0.2):
        return None
    starved = minimax or bool(np.isfinite(fall) and fall < 0.05)
    climbs = any(
        curve and not curve.is_signed and curve.end > 3 * max(curve.start, 0.1)
        for curve in view.curves.values()
    )
    if not (starved or climbs):
        return None
    rows = np.flatnonzero(scores > BIASED)
    step = view.label(int(rows[0])) if len(rows) else view.label(0)
    layer = next((x.path for x in view.flow.executed if x.model == generator), None)
    felt = f"{named(layer)} gets {figure(fall)} of its early gradient"
    felt = SATURATES if minimax else felt
    return Assessment(
        cause="discriminator_overpowers",
        failure=FailureType.VANISHING_GRADIENTS if starved else FailureType.REPRESENTATION_COLLAPSE,
        confidence=0.75,
        description=(
            f"Discriminator overpowers the generator by step {step}: {judge!r} scores samples with "
            f"certainty (logits of {figure(certain)}), and {felt}."
        ),
        layer=layer,
        onset=step,
        onset_range=(view.label(0), step),
        evidence=view.events(types=["gradient_health_transition", "activation_regime_shift"]),
        chain=(
            link(
                weighted[-1].path if weighted else None,
                step,
                "real and made up are told apart with certainty",
            ),
            link(layer, step, "the generator's gradient vanishes, or its loss climbs"),
        ),
        explains=frozenset({"unknown", "mode_collapse", "saturating_activations"}),
    )


def _is_minimax(view: CaseView, judge: str) -> bool:
    """Whether the generator is trained to lower log(1 - D(G(z))), as in the first form of GANs.

    Its gradient is proportional to D(G(z)): where the discriminator is certain, nothing is left of
    it, however the discriminator's own loss looks.
    """
    for note in view.observations.get("loss_function", ()):
        factor, name = note.figures.get("factor", 0.0), note.words.get("name")
        is_alone = note.figures.get("terms") == 1 and (note.layer or "").startswith(f"{judge}.")
        if is_alone and (factor < 0 if name in LOGISTIC else name == "log" and factor > 0):
            return True
    return False


def _gradient(view: CaseView, model: str) -> np.ndarray:
    rows = [
        i
        for i, p in enumerate(view.run.parameters)
        if p.name.startswith(f"{model}.") and len(p.shape) > 1
    ]
    rms = view.gradient_rms[:, rows]
    stepped = ~np.isnan(rms).all(axis=1)
    return np.where(stepped, np.sqrt(np.nansum(rms**2, axis=1)), np.nan)
