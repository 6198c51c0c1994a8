# SPDX-License-Identifier: MIT
"""A sum over the batch where a mean was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.objective.losses import FLOORS, Term

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

SUMMED = 32
"""Elements added up below which a sum and a mean differ too little to matter. Heuristic."""


class SumReduction:
    """Reports a recognised loss that is summed and divided by nothing.

    The sum goes over the batch, or over what each sample holds. Then the gradient grows with that
    number: a learning rate chosen for a mean is that much too high. Whether it is too high the
    figures of the run must tell: a summed loss (VAEs, detection) with a fitting learning rate is
    fine, so the confidence is low on its own, and higher where other terms of the same loss are
    means.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at each recognised term once."""
        summed = [term for term in view.terms if self._is_summed(term)]
        is_mixed = any(t.summed == 1 and t.name in FLOORS for t in view.terms)
        for term in summed:
            if term.name in self._told:
                continue
            self._told.add(term.name)
            alone = 0.5 if len(view.terms) == 1 else 0.2
            yield view.observation(
                "sum_reduction",
                view.layer_of(term.feed),
                confidence=0.6 if is_mixed else alone,
                figures={"samples": view.batch_size, "summed": term.summed},
                cause="wrong_reduction",
                loss=term.name,
                over="samples" if term.reduction == "sum" else "elements",
                others="mean" if is_mixed else "",
            )

    def _is_summed(self, term: Term) -> bool:
        known = term.name in FLOORS or term.name in {"mse", "l1", "soft_cross_entropy"}
        return known and term.summed >= SUMMED and not term.is_divided and not term.is_weighted
