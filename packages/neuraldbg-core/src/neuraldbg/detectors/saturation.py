# SPDX-License-Identifier: MIT
"""Saturation: most of a bounded activation's outputs lie where its derivative is near zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from neuraldbg.detectors.transitions import Follower, leaves_normal
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import ActivationHealth, EventType, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.settings import Settings

FLAT_SHARE = 0.5
"""Share of outputs with a derivative below 1 % of its peak from which a layer is reported
(SageMaker Debugger, DeepDiagnosis and TheDeepChecker all use one half)."""
ONE_SIDED = frozenset(
    {"relu", "relu6", "leakyrelu", "leaky_relu", "prelu", "threshold", "elu", "celu", "selu"}
    | {"rrelu", "softplus", "logsigmoid", "gelu", "silu", "swish", "mish", "hardswish"}
    | {"softmax", "log_softmax", "logsoftmax", "softmax2d", "glu"}
)
"""Activations for which a flat half is the design, or confidence: a certain softmax is no fault."""


class Saturation(Follower):
    """Reports sigmoid-like and tanh-like layers that are mostly flat."""

    name: ClassVar[str] = "saturation"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.ACTIVATION_REGIME_SHIFT})

    def __init__(self, run: RunInfo, settings: Settings) -> None:  # noqa: ARG002 - the contract
        """Start a run."""
        kind = leaves_normal(self.name, ActivationHealth.SATURATED)
        super().__init__(kind, tuple(layer.path for layer in run.layers))
        self._run = run
        self._bounded = _bounded(run)

    def on_step(self, facts: StepFacts) -> Iterable[SemanticEvent]:
        """Compare every bounded layer's flat share with the threshold."""
        if facts.run is not self._run:
            self._run = facts.run
            self._bounded = _bounded(facts.run)[: len(self.transitions.names)]
        count = len(self._bounded)
        if not facts.is_sampled or len(facts.activation) < count or not self._bounded.any():
            return ()
        flat = facts.activation[:count, ActivationStat.FLAT_SHARE]

        def describe(row: int) -> tuple[dict[str, float | str], Severity, float]:
            share = float(flat[row])
            return {"flat_share": share}, Severity.WARNING, min(0.95, 0.4 + 0.55 * share)

        return self.transitions.update(
            facts.step, flat > FLAT_SHARE, self._bounded & ~np.isnan(flat), describe
        )


def _bounded(run: RunInfo) -> NDArray[np.bool_]:
    """Return `[L]`: layers whose activation is known to saturate. Known after the first step."""
    return np.array(
        [bool(x.activation) and str(x.activation).lower() not in ONE_SIDED for x in run.layers],
        dtype=bool,
    )
