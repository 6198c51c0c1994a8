# SPDX-License-Identifier: MIT
"""Mode collapse: a generator's outputs lose their variety while its noise keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.adversary import generator_of
from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

SPREAD = 0.06
FALL = 3.0
ALIKE = 0.95


def assess(view: CaseView) -> Assessment | None:
    """Look at the spread between generated samples, first against last."""
    generator = generator_of(view)
    if generator is None:
        return None
    outputs = [x for x in view.flow.executed if x.model == generator]
    if not outputs:
        return None
    last_layer = outputs[-1]
    spread = view.activation(ActivationStat.SPREAD)[:, view.flow.row[last_layer.path]]
    last = float(view.late(spread))
    most = float(np.nanmax(spread)) if np.isfinite(spread).any() else float("nan")
    alike = float(
        view.late(view.activation(ActivationStat.COSINE)[:, view.flow.row[last_layer.path]])
    )
    is_one = last < SPREAD and last * FALL < most
    is_one |= alike > ALIKE and last < 3 * SPREAD and last * (FALL + 1) < most
    if not is_one:
        return None
    rows = np.flatnonzero(spread > 2 * SPREAD)
    step = view.label(int(rows[-1]) + 1) if len(rows) else view.label(0)
    return Assessment(
        cause="mode_collapse",
        failure=FailureType.REPRESENTATION_COLLAPSE,
        confidence=0.8,
        description=(
            f"Mode collapse in {named(last_layer.path)} by step {step}: generated samples differ "
            f"by {figure(last)} of their size (at most {figure(most)} before), whatever the noise."
        ),
        layer=last_layer.path,
        onset=step,
        onset_range=(view.label(0), step),
        evidence=view.events(types=["representation_collapse"]),
        chain=(link(last_layer.path, step, "all noise vectors give one sample"),),
        explains=frozenset({"unknown", "discriminator_overpowers"}),
    )
