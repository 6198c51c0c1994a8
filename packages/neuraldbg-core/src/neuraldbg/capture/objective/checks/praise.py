# SPDX-License-Identifier: MIT
"""A policy gradient that praises whatever was tried: returns never fall below their baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

LOOKS = 6
"""Looks, all of the same sign, before it is said: returns may all be good for a batch or two."""


class OneSidedPraise:
    """Watches the factors of log-probabilities. Context for other rules, not a fault.

    Without a baseline and with rewards of one sign, every sampled action becomes more probable,
    and the faster the more probable it was (Williams 1992; Sutton and Barto 2018, section 13.4).
    """

    def __init__(self) -> None:
        self._looks = 0
        self._is_settled = False

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at every weighted log-probability; report once."""
        if self._is_settled:
            return
        terms = [t for t in view.terms if t.name == "log_probability" and t.is_weighted]
        if any(term.has_negative_weights for term in terms):
            self._is_settled = True
        elif terms:
            self._looks += 1
            if self._looks == LOOKS:
                self._is_settled = True
                yield view.observation(
                    "one_sided_praise", view.layer_of(terms[0].feed), confidence=1.0
                )
