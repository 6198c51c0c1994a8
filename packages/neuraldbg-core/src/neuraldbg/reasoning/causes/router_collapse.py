# SPDX-License-Identifier: MIT
"""Router collapse: almost all tokens go to few experts; the others get no gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.cause import Assessment, link, named
from neuraldbg.reasoning.experts import WINDOWS, Mixture, idle, mixtures
from neuraldbg.reasoning.view import measured
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView

FIRST = 20
"""Steps within which at least two experts must have run: there was a choice."""
HALF = 0.5
"""Share of idle experts that makes a collapse."""
LASTING = 0.25
"""Share of idle experts at the end of a run that had collapsed for half of its length: a router
that shares its work again by then has recovered."""


def assess(view: CaseView) -> Assessment | None:
    """Compare calls and gradients of sibling branches that stand in parallel."""
    if len(view.steps) < 2 * FIRST:
        return None
    found = [(_starved(view, mixture), mixture) for mixture in mixtures(view, 4)]
    starved, mixture = max(found, key=lambda one: one[0] / len(one[1].members), default=(0, None))
    if mixture is None or not starved:
        return None
    group, router, count = mixture.name, mixture.router(view), len(mixture.members)
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


def _starved(view: CaseView, mixture: Mixture) -> int:
    """Return how many experts idle, at the end or for half of the run and still; 0: no collapse."""
    count = len(mixture.members)
    idling = idle(view, mixture.members).sum(axis=1)
    long = [int(n) for n in idling if HALF <= n / count < 1]
    last = int(idling[-1])
    if HALF <= last / count < 1:
        found = last
    elif len(long) >= WINDOWS // 2 and last / count >= LASTING:
        found = max(long)
    else:
        return 0
    calls = measured(view.activation(ActivationStat.CALLS))[:FIRST]
    ran = int((calls[:, [view.flow.row[path] for path in mixture.members]] > 0).any(axis=0).sum())
    had_choice = ran > 1 or mixture.scorer(view) is not None
    return found if had_choice else 0
