# SPDX-License-Identifier: LicenseRef-Proprietary
"""The engine's hook implementations, registered under the entry point `engine`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from neuraldbg.hookspecs import hookimpl

if TYPE_CHECKING:
    from neuraldbg.causes import Vocabulary
    from neuraldbg.schema.hypotheses import CausalHypothesis, Coupling
    from neuraldbg.trace import Trace

_FAILED: WeakKeyDictionary[Trace, tuple[tuple[object, ...], bool]] = WeakKeyDictionary()
"""Whether anything was found in traces that are still in use: couplings follow explanations."""


@hookimpl
def neuraldbg_reason(trace: Trace, vocabulary: Vocabulary) -> list[CausalHypothesis]:
    """Return ranked, calibrated hypotheses; the causes of plugins take part by their cards."""
    from neuraldbg_engine.causes import deck
    from neuraldbg_engine.explain import explain

    found = explain(trace, deck(vocabulary.causes.values()))
    _FAILED[trace] = _state(trace), bool(found)
    return found


@hookimpl
def neuraldbg_couplings(trace: Trace, window: int) -> list[Coupling] | None:
    """Return pairs of failures of which one led to the other; none on a healthy run."""
    from neuraldbg_engine.coupling import couplings
    from neuraldbg_engine.explain import explain
    from neuraldbg_engine.findings import Case

    state, has_failed = _FAILED.get(trace, (None, False))
    if state != _state(trace):
        has_failed = bool(explain(trace))
        _FAILED[trace] = _state(trace), has_failed
    return couplings(Case(trace), window) if has_failed else []


def _state(trace: Trace) -> tuple[object, ...]:
    return trace.step_count, len(trace.events), len(trace.observations), trace.is_finished
