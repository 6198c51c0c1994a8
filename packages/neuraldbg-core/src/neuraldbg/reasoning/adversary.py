# SPDX-License-Identifier: MIT
"""Two models against each other: which is the generator, which the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.schema.facts import ActivationStat

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView


def roles(view: CaseView) -> tuple[str, str] | None:
    """Return (generator, discriminator): the judge ends in one unit, or runs more often a step."""
    models = list(view.run.models)
    if len(models) != 2:
        return None
    calls = view.activation(ActivationStat.CALLS)
    figures = {}
    for model in models:
        layers = [x for x in view.flow.executed if x.model == model]
        if not layers:
            return None
        rows = [view.flow.row[x.path] for x in layers]
        weighted = [x for x in layers if x.path in view.flow.matrices]
        units = weighted[-1].units if weighted else layers[-1].units
        often = float(np.nanmedian(calls[:, rows])) if calls.size else 1.0
        figures[model] = (often, units)
    first, second = models
    (often1, units1), (often2, units2) = figures[first], figures[second]
    if (units1 == 1) != (units2 == 1):
        return (second, first) if units1 == 1 else (first, second)
    if often1 == often2:
        return None
    return (second, first) if often1 > often2 else (first, second)


def generator_of(view: CaseView) -> str | None:
    """Return the name of the generator; None where there is no such pair."""
    pair = roles(view)
    return pair[0] if pair else None
