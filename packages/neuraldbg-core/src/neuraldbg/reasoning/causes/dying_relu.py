# SPDX-License-Identifier: MIT
"""Dying ReLU: the units of a rectifying layer stop for good, and nothing flows back through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, link, named
from neuraldbg.reasoning.symptoms import dead_layers
from neuraldbg.schema.run import LayerRole
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.symptoms import Dead
    from neuraldbg.reasoning.view import CaseView

RARELY = 0.1
"""Share of steps on which a layer behind dead units may still get a gradient: the last of them
fire now and then while they die."""
DONE = 0.6
"""Progress from which a run needs none of the units that were dead from its start."""


def assess(view: CaseView) -> Assessment | None:
    """Name the first layer, in time and data flow, whose units are dead where the run fails."""
    if view.is_broken:
        return None
    dead = dead_layers(view, 0.9)
    if view.curve.learned:
        dead = [d for d in dead if _is_certain(view, d)]
    if not dead:
        return None
    first_row = min(d.row for d in dead)
    early = {d.layer.path for d in dead if d.row <= first_row + 1}
    path = view.flow.frontier(early)[0]
    chosen = next(d for d in dead if d.layer.path == path)
    step = view.label(chosen.row)
    when = "from the start" if chosen.is_from_start else "and never came back"
    return Assessment(
        cause="dying_relu",
        failure=FailureType.DEAD_NEURONS,
        confidence=0.7 if chosen.share > 0.99 else 0.55,
        description=(
            f"Dead units in {named(path)} at step {step}: {100 * chosen.share:.0f} % of its "
            f"{chosen.layer.activation} units give zero for every sample {when}, so no gradient "
            "passes."
        ),
        layer=path,
        onset=step,
        onset_range=(max(step - 1, 0), step),
        evidence=view.events(types=["activation_regime_shift"], state="dead"),
        chain=(
            link(path, step, "pre-activations are negative for every sample"),
            link(path, step, "outputs and gradients are zero, so the weights cannot come back"),
        ),
        explains=frozenset(
            {
                "unknown",
                "labels_unrelated_to_inputs",
                "lr_too_low",
                "deep_without_residual",
                "embedding_collapse",
                "posterior_collapse",
                "oversmoothing",
            }
        ),
    )


def _is_certain(view: CaseView, dead: Dead) -> bool:
    """Whether a layer counts as dead although the loss fell: it cuts the flow, or never lived.

    Wide and branching networks learn beside units that are silent.
    """
    if dead.is_from_start:
        return dead.layer.role is LayerRole.ACTIVATION and view.curve.progress <= DONE
    before = [p for p in view.flow.matrices if view.flow.is_upstream(p, dead.layer.path)]
    if dead.layer.path in view.flow.matrices:
        before.append(dead.layer.path)
    cut = [view.layer_gradient(path)[dead.row + 2 :] for path in before]
    known = [g[np.isfinite(g)] for g in cut if np.isfinite(g).any()]
    total = view.gradient_total[dead.row + 2 :]
    alive = total[np.isfinite(total)]
    is_cut = all(np.mean(gradient > 0) < RARELY for gradient in known)
    return bool(known and len(alive) > 10 and np.median(alive) > 0 and is_cut)
