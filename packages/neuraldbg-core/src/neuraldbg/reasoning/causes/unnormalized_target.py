# SPDX-License-Identifier: MIT
"""Unnormalised target: a regression whose targets are orders larger than what the model outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link
from neuraldbg.reasoning.symptoms import chance_loss, output_rms
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

LARGE = 100.0
"""First loss of a regression: its square root, 10, is the distance of targets from outputs."""


def assess(view: CaseView) -> Assessment | None:
    """Infer the scale of the targets from the first loss and the first outputs."""
    curve = view.curve
    if not curve or not len(view.steps) or curve.is_signed or chance_loss(view) is not None:
        return None
    objective = view.objective
    if objective.is_summed or (
        objective.names and not (objective.is_squared or objective.is_absolute)
    ):
        return None
    squared = objective.is_squared
    output = float(output_rms(view)[0])
    first = curve.first
    scale = first if objective.is_absolute else float(np.sqrt(first))
    incoming = view.early(view.activation(ActivationStat.INPUT_RMS))
    entries = [float(incoming[view.flow.row[x.path]]) for x in view.flow.entries]
    if any(x > 8.0 for x in entries if np.isfinite(x)):
        return None
    if first < LARGE or not np.isfinite(output) or output > 0.3 * scale:
        return None
    if curve.progress > 0.9 or not (view.is_failing or curve.progress < 0.75):
        return None
    step = view.label(0)
    head = view.flow.outputs[0].path if view.flow.outputs else None
    return Assessment(
        cause="unnormalized_target",
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=0.7 if squared else 0.5,
        description=(
            f"Targets not normalised from step {step}: the first loss is {figure(first)} while "
            f"outputs are of size {figure(output)}, so targets are about {figure(float(scale))}."
        ),
        layer=head,
        onset=step,
        onset_range=(step, step),
        evidence=view.events(types=["optimizer_instability", "gradient_health_transition"]),
        chain=(
            link(
                head,
                step,
                f"targets of size {figure(float(scale))} meet outputs of {figure(output)}",
            ),
            link(head, step, "loss and head gradients are the square of that"),
        ),
        explains=frozenset({"lr_too_high", "unknown", "dying_relu", "missing_gradient_clipping"}),
    )
