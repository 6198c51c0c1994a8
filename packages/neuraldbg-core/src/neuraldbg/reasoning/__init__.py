# SPDX-License-Identifier: MIT
"""The heuristic reasoner of the core: a trace in, ranked hypotheses and couplings out.

`view`, `curve`, `flow`, `objective`, `symptoms`, `inputs`, `schedule`, `adversary` and
`rank.assess_all` are public to reasoners in other packages, such as the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from neuraldbg.schema.hypotheses import CausalHypothesis, Coupling
    from neuraldbg.trace import Trace

_FOUND: WeakKeyDictionary[Trace, tuple[object, list[CausalHypothesis]]] = WeakKeyDictionary()
"""What was found in traces that are still in use: couplings follow explanations."""


def reason(trace: Trace) -> list[CausalHypothesis]:
    """Return what went wrong in a run and why, most probable first; empty on a healthy run."""
    from neuraldbg.reasoning.rank import hypotheses
    from neuraldbg.reasoning.view import CaseView

    state = trace.step_count, len(trace.events), len(trace.observations), trace.is_finished
    then, found = _FOUND.get(trace, (None, []))
    if then != state:
        found = hypotheses(CaseView(trace))
        _FOUND[trace] = state, found
    return list(found)


def couplings(trace: Trace, window: int = 5) -> list[Coupling]:
    """Return pairs of failures of which one followed the other; empty on a healthy run.

    Args:
        trace: The run.
        window: Most steps between the two.
    """
    from neuraldbg.reasoning.couplings import couplings as couple
    from neuraldbg.reasoning.view import CaseView

    return couple(CaseView(trace), window) if reason(trace) else []
