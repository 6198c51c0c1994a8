# SPDX-License-Identifier: LicenseRef-Proprietary
"""The engine's hook implementations, registered under the entry point `engine`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.hookspecs import hookimpl

if TYPE_CHECKING:
    from neuraldbg.causes import Vocabulary
    from neuraldbg.schema.hypotheses import CausalHypothesis, Coupling
    from neuraldbg.trace import Trace


@hookimpl
def neuraldbg_reason(trace: Trace, vocabulary: Vocabulary) -> list[CausalHypothesis]:
    """Return ranked, calibrated hypotheses; the causes of plugins take part by their cards."""
    from neuraldbg_engine.causes import deck
    from neuraldbg_engine.explain import explain

    return explain(trace, deck(vocabulary.causes.values()))


@hookimpl
def neuraldbg_couplings(trace: Trace, window: int) -> list[Coupling] | None:
    """Leave the pairing of failures to core's heuristics."""
