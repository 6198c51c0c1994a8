# SPDX-License-Identifier: MIT
"""A loss that is minimised with the wrong sign."""

from __future__ import annotations

import math
from collections.abc import Iterable

from neuraldbg.capture.objective.losses import FLOORS
from neuraldbg.capture.objective.view import View
from neuraldbg.schema.facts import Observation


class NegativeTerm:
    """Reports an error measure that enters the loss with a negative factor, or a log-probability
    that enters with a positive one: minimising it makes the model worse without bound.

    Alone in the loss of a single model it is a fault; beside other terms, or among several models,
    it may be adversarial, and the confidence says so. Weighted log-probabilities (policy
    gradients) are silent.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at the sign of each recognised term."""
        for term in view.terms:
            if term.factor is None or term.is_weighted or term.name in self._told:
                continue
            has_floor = not math.isnan(FLOORS.get(term.name, math.nan))
            is_wrong = (has_floor and term.factor < 0) or (
                term.name in {"log_probability", "soft_cross_entropy"} and term.factor > 0
            )
            if not is_wrong:
                continue
            self._told.add(term.name)
            is_alone = len(view.terms) == 1 and ("" in view.modules or len(view.modules) < 2)  # noqa: PLR2004
            yield view.observation(
                "negative_term",
                view.layer_of(term.feed),
                confidence=0.9 if is_alone else 0.3,
                figures={"factor": term.factor, "terms": len(view.terms)},
                cause="wrong_loss_sign",
                loss=term.name,
            )
