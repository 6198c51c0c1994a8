# SPDX-License-Identifier: MIT
"""Initialisation too large: weights start far above what their fan-in bears."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import (
    BOUNDED,
    chance_loss,
    flat_share,
    initial_scales,
    output_rms,
)
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

LARGE = 2.2
"""Times He's scale, sqrt(2 / fan_in), the largest of the usual ones."""

ONE_HOT = 0.98
"""Mean largest value of a softmax's rows at the start: the rest gets nothing, nor any gradient."""
EXPANDS = 1.5
"""Gain of a recurrent matrix per time step: 1.5 ** 20 is above 3,000."""
FAR = 1e3
"""Gradient at the first time steps over that at the last, before any update: a small gain does the
same over more time steps."""


def assess(view: CaseView) -> Assessment | None:
    """Compare initial weights with usual scales, and look for what too large ones do at step 0."""
    curve = view.curve
    if not (curve or view.is_broken) or not len(view.steps):
        return None
    expanding = _expanding(view)
    if expanding is not None:
        return expanding
    scales = [s for s in initial_scales(view) if s.large > LARGE]
    if not scales:
        return None
    first = scales[0]
    chance = chance_loss(view)
    output = float(output_rms(view)[0])
    effects = []
    if chance is not None and curve.first > 3 * chance:
        effects.append(f"the first loss is {figure(curve.first)} where chance is {figure(chance)}")
    if output > 10:  # not finite: squares of it are beyond the range
        effects.append(f"outputs start at RMS {figure(output)}")
    saturated = [
        layer.path
        for layer in view.flow.executed
        if layer.activation in BOUNDED and float(view.early(flat_share(view, layer.path))) > 0.4
    ]
    certain = view.early(view.activation(ActivationStat.ROW_MAX))
    saturated += [
        layer.path
        for layer in view.flow.executed
        if layer.activation == "softmax"
        and not layer.is_output
        and float(certain[view.flow.row[layer.path]]) > ONE_HOT
        and view.flow.is_upstream(first.layer, layer.path)
    ]
    if saturated:
        effects.append(f"{saturated[0]!r} starts saturated")
    poor = chance is not None and curve.first > 3 * chance and curve.end > 0.5 * chance
    stays = any(float(view.late(flat_share(view, path))) > 0.4 for path in saturated)
    is_adversarial = len(view.run.models) > 1  # whose losses tell nothing of success
    if not effects or not (view.is_failing or poor or (is_adversarial and stays)):
        return None
    step = view.label(0)
    failure = FailureType.OPTIMIZER_INSTABILITY
    if saturated:
        failure = FailureType.SATURATED_ACTIVATIONS
    elif curve.is_diverged:
        failure = FailureType.EXPLODING_GRADIENTS
    return Assessment(
        cause="init_too_large",
        failure=failure,
        confidence=0.6 + 0.1 * (len(effects) > 1) + 0.1 * (first.large > 4) + 0.1 * poor,
        description=(
            f"Initialisation too large in {named(first.layer)} at step {step}: its weights start "
            f"at RMS {figure(first.rms)}, {figure(first.large)} times the largest usual scale; "
            f"{'; '.join(effects)}."
        ),
        layer=first.layer,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(until=step + 5),
        chain=(
            link(first.layer, step, f"weights start {figure(first.large)} times too large"),
            link(None, step, "; ".join(effects)),
        ),
        explains=EXPLAINED,
    )


EXPLAINED = frozenset(
    {
        "lr_too_high",
        "lr_too_low",
        "saturating_activations",
        "dying_relu",
        "deep_without_residual",
        "missing_gradient_clipping",
        "missing_warmup",
        "residual_scale_growth",
        "unknown",
        "unnormalized_target",
        "attention_collapse",
        "embedding_collapse",
    }
)


def _measured_growth(view: CaseView, path: str) -> float:
    """Return how many times the gradient grew on its way back through time at the first look.

    A run that broke before it was looked at shows the same by its states, where nothing bounds
    them: their RMS over that of what enters, on the first step.
    """
    notes = [n for n in view.observations.get("recurrent_gradient", []) if n.layer == path]
    if notes:
        return float(notes[0].figures["early_late_ratio"])
    row = view.flow.row[path]
    states = view.activation(ActivationStat.RMS)[0, row]
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(states / view.activation(ActivationStat.INPUT_RMS)[0, row])


def _expanding(view: CaseView) -> Assessment | None:
    """Look for a recurrence that multiplies its state at each time step, before any update.

    A random matrix of RMS g / sqrt(n) stretches by about g, an orthogonal one by exactly g; over T
    time steps states and gradients grow by g ** T. Gated cells bound theirs.
    """
    total = view.gradient_total
    huge = view.trace.settings.threshold_exploding
    if not view.is_failing or not len(total) or not total[0] > huge:
        return None
    for layer in view.flow.recurrent:
        if not layer.kind.lower().startswith("rnn"):
            continue
        for row in view.flow.matrices.get(layer.path, []):
            info = view.run.parameters[row]
            gain = info.initial_rms * np.sqrt(info.shape[-1])
            grows = _measured_growth(view, layer.path)
            if "weight_hh" not in info.name or not (gain > EXPANDS or (gain > 1 and grows > FAR)):
                continue
            step = view.label(0)
            return Assessment(
                cause="init_too_large",
                failure=FailureType.EXPLODING_GRADIENTS,
                confidence=0.8,
                description=(
                    f"Gradient explosion originated in {named(layer.path)} at step {step}: its "
                    f"recurrent weights start with a gain of about {figure(gain)} per time step, "
                    f"and the gradient norm is {figure(float(total[0]))} before the first update."
                ),
                layer=layer.path,
                onset=step,
                onset_range=(step, step),
                evidence=view.events(types=["gradient_health_transition"], until=step + 5),
                chain=(
                    link(layer.path, step, f"each time step multiplies by about {figure(gain)}"),
                    link(layer.path, step, "states and gradients grow geometrically over time"),
                ),
                explains=EXPLAINED,
            )
    return None
