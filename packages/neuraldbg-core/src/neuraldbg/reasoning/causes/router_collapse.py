# SPDX-License-Identifier: MIT
"""Router collapse: almost all tokens go to few experts; the others get no gradient."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, link, named
from neuraldbg.reasoning.view import measured, quiet
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

STARVED = 1e-3
"""Gradient RMS of an expert over that of the strongest."""
IDLE = 0.02
"""Share of late steps on which a starved expert may still be called."""
FIRST = 20
"""Steps within which at least two experts must have run: there was a choice."""


def assess(view: CaseView) -> Assessment | None:
    """Compare calls and gradients of sibling branches that stand in parallel."""
    if len(view.steps) < 2 * FIRST:
        return None
    calls = measured(view.activation(ActivationStat.CALLS))
    best: tuple[float, str, int, int] | None = None
    for group, members in experts(view, 4).items():
        rows = [view.flow.row[path] for path in members]
        late = often(view, members)
        called = (calls[-max(10, len(calls) // 4) :, rows] > 0).mean(axis=0)
        ran_once = int((calls[:FIRST, rows] > 0).any(axis=0).sum())
        starved = int(np.sum((late < STARVED * late.max()) | (called < IDLE)))
        share = starved / len(members)
        had_choice = ran_once >= 2 or _scores(view, group, len(members))
        is_collapsed = late.max() > 0 and 0.5 <= share < 1 and had_choice
        if is_collapsed and (best is None or share > best[0]):
            best = share, group, starved, len(members)
    if best is None:
        return None
    share, group, starved, count = best
    router = _router(view, group)
    step = view.label(0)
    return Assessment(
        cause="router_collapse",
        failure=FailureType.REPRESENTATION_COLLAPSE,
        confidence=0.7,
        description=(
            f"Router collapse in {named(router)} from step {step}: {starved} of {count} experts "
            f"in {group!r} are hardly called or get no gradient, so nearly everything goes to the "
            "others."
        ),
        layer=router,
        onset=step,
        onset_range=(step, view.label(len(view.steps) - 1)),
        evidence=view.events(types=["representation_collapse", "gradient_health_transition"]),
        chain=(
            link(
                router, step, "the router prefers few experts, which learn and are preferred more"
            ),
            link(group, step, f"{starved} experts get no gradient"),
        ),
        explains=frozenset({"unknown", "dying_relu", "detached_graph"}),
    )


def _scores(view: CaseView, group: str, count: int) -> bool:
    """Whether a layer beside the experts gives each of them a score: all could be chosen."""
    owner = group.split("*", maxsplit=1)[0].rstrip(".").rpartition(".")[0]
    if not re.search(r"expert|moe|specialist", group.lower()):
        return False
    inside = group.split("*", maxsplit=1)[0]
    return any(
        layer.units == count
        and layer.path.startswith(owner)
        and not layer.path.startswith(inside)
        and layer.path in view.flow.matrices
        for layer in view.flow.executed
    )


def often(view: CaseView, members: list[str]) -> NDArray[np.float64]:
    """Return the 90th percentile of each expert's gradient over the last quarter of measured rows.

    A rarely chosen expert is not starved. `[E]`; 0 where an expert never had a gradient.
    """
    gradients = measured(np.stack([view.layer_gradient(path) for path in members], axis=1))
    tail = gradients[-max(10, len(gradients) // 4) :]
    tail = np.where(np.isfinite(tail), tail, np.nan)
    return np.nan_to_num(quiet(np.nanquantile, tail, 0.9, axis=0))


def experts(view: CaseView, least: int) -> dict[str, list[str]]:
    """Return groups of `least` or more weight layers whose paths differ in an expert's number."""
    groups: dict[str, dict[str, str]] = {}
    for layer in view.run.layers:
        if layer.path not in view.flow.matrices:
            continue
        for match in re.finditer(r"(?<=\.)\d+(?=\.|$)", layer.path):
            head, tail = layer.path[: match.start()], layer.path[match.end() :]
            if re.search(r"expert|branch|moe|ffn|ffs|mlps|specialist", head.lower()):
                groups.setdefault(f"{head}*{tail}", {})[match.group()] = layer.path
    return {key: list(found.values()) for key, found in groups.items() if len(found) >= least}


def _router(view: CaseView, group: str) -> str | None:
    owner = group.split("*", maxsplit=1)[0].rstrip(".").rpartition(".")[0]
    words = ("router", "gate", "gating", "switch", "route", "dispatch")
    for layer in view.flow.executed:
        if layer.path.startswith(owner) and any(w in layer.path.lower() for w in words):
            return layer.path
    return owner or None
