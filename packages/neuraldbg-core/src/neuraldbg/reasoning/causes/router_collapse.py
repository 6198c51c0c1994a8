# SPDX-License-Identifier: MIT
"""Router collapse: almost all tokens go to few experts; the others get no gradient."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

STARVED = 1e-3
"""Gradient RMS of an expert over that of the strongest."""


def assess(view: CaseView) -> Assessment | None:
    """Compare the gradients of sibling branches that stand in parallel."""
    best: tuple[float, str, int, int] | None = None
    for group, members in _siblings(view).items():
        late = np.array([_often(view.layer_gradient(p)) for p in members])
        early = np.array([float(view.early(view.layer_gradient(p), 20)) for p in members])
        late, early = np.nan_to_num(late), np.nan_to_num(early)
        if late.max() <= 0:
            continue
        starved = int(np.sum(late < STARVED * late.max()))
        fed_once = int(np.sum(early > STARVED * max(early.max(), 1e-30)))
        share = starved / len(members)
        if share >= 0.5 and fed_once >= 2 and (best is None or share > best[0]):
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
            f"Router collapse in {named(router)} : {starved} of {count} experts in {group!r} get "
            f"less than {figure(STARVED)} of the strongest one's gradient, so nearly everything "
            "goes to the others."
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
        explains=frozenset({"unknown", "dying_relu"}),
    )


def _often(gradient: NDArray[np.float64]) -> float:
    """Return the 90th percentile over the last quarter: a rarely chosen expert is not starved."""
    tail = gradient[-max(10, len(gradient) // 4) :]
    tail = tail[np.isfinite(tail)]
    return float(np.quantile(tail, 0.9)) if len(tail) else 0.0


def _siblings(view: CaseView) -> dict[str, list[str]]:
    """Return groups of at least 4 weight layers whose paths differ in one index alone."""
    groups: dict[str, dict[str, str]] = {}
    for layer in view.run.layers:
        if layer.path not in view.flow.matrices:
            continue
        for match in re.finditer(r"(?<=\.)\d+(?=\.|$)", layer.path):
            head, tail = layer.path[: match.start()], layer.path[match.end() :]
            if not re.search(r"expert|branch|moe|ffn|ffs|mlps|specialist", head.lower()):
                continue
            groups.setdefault(f"{head}*{tail}", {})[match.group()] = layer.path
    return {key: list(members.values()) for key, members in groups.items() if len(members) >= 4}


def _router(view: CaseView, group: str) -> str | None:
    owner = group.split("*", maxsplit=1)[0].rstrip(".").rpartition(".")[0]
    words = ("router", "gate", "gating", "switch", "route", "dispatch")
    for layer in view.flow.executed:
        if layer.path.startswith(owner) and any(w in layer.path.lower() for w in words):
            return layer.path
    return owner or None
