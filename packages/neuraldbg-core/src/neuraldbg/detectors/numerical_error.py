# SPDX-License-Identifier: MIT
"""Numerical error: where a NaN or Inf was born, as the microscope or the extremes saw it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from neuraldbg.detectors.transitions import observed
from neuraldbg.schema.facts import ActivationStat, ParameterStat
from neuraldbg.schema.vocabulary import EventType, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.thinned import ThinnedSteps
    from neuraldbg.settings import Settings

KINDS = frozenset(
    {"nonfinite_birth", "nonfinite_input", "nonfinite_parameter", "nonfinite_unlocated"}
)
MOST_EVENTS = 32


class NumericalError:
    """Reports births of non-finite values, and the first layer and parameter that held one."""

    name: ClassVar[str] = "numerical_error"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.NUMERICAL_ERROR})

    def __init__(self, run: RunInfo, settings: Settings) -> None:  # noqa: ARG002 - the contract
        """Start a run."""
        self._told = 0
        self._is_output_told = self._is_weight_told = False

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Turn observations into events; without any, name the first layer that is not finite."""
        events = []
        for note in facts.observations:
            if note.kind in KINDS and self._told < MOST_EVENTS:
                self._told += 1
                evidence: dict[str, float | str] = {**note.figures, **note.words}
                events.append(self._event(note.kind, note.step, note.layer, evidence))
        if not self._is_output_told:
            row = _first_output(facts)
            if row is not None:
                self._is_output_told = True
                layer = facts.run.layers[row].path
                events.append(self._event("nonfinite_output", facts.step, layer, {}))
        if not self._is_weight_told and len(facts.parameter):
            size = facts.parameter[:, ParameterStat.WEIGHT_MAX]
            broken = ~np.isfinite(size) & ~np.isnan(facts.parameter[:, ParameterStat.WEIGHT_RMS])
            if broken.any():
                self._is_weight_told = True
                info = facts.run.parameters[int(np.flatnonzero(broken)[0])]
                evidence = {"parameter": info.name}
                events.append(self._event("nonfinite_weight", facts.step, info.layer, evidence))
        return events

    def absorb(self, steps: ThinnedSteps) -> bool:  # noqa: ARG002 - the contract
        """Take steps of which nothing that matters here was measured."""
        return True

    def on_finish(self) -> Iterable[SemanticEvent]:
        """Nothing is left to say."""
        return ()

    def _event(
        self, kind: str, step: int, layer: str | None, evidence: dict[str, float | str]
    ) -> SemanticEvent:
        return observed(
            self.name,
            EventType.NUMERICAL_ERROR,
            ("finite", kind),
            kind=kind,
            step=step,
            layer=layer,
            evidence=evidence,
            severity=Severity.CRITICAL,
        )


def _first_output(facts: StepFacts) -> int | None:
    """Return the row of the first layer, in execution order, whose output was not finite."""
    if not len(facts.activation):
        return None
    rows = np.flatnonzero(facts.activation[:, ActivationStat.NONFINITE] == 1.0)
    if not len(rows):
        return None
    layers = facts.run.layers
    return int(min(rows, key=lambda row: (layers[row].order < 0, layers[row].order, row)))
