# SPDX-License-Identifier: MIT
"""The heuristic reasoner of the core: a trace in, ranked hypotheses and couplings out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.schema.hypotheses import CausalHypothesis, Coupling
    from neuraldbg.trace import Trace


def reason(trace: Trace) -> list[CausalHypothesis]:
    """Return what went wrong in a run and why, most probable first; empty on a healthy run."""
    from neuraldbg.reasoning.rank import hypotheses
    from neuraldbg.reasoning.view import CaseView

    return hypotheses(CaseView(trace))


def couplings(trace: Trace, window: int = 5) -> list[Coupling]:
    """Return pairs of failures of which one followed the other; empty on a healthy run.

    Args:
        trace: The run.
        window: Most steps between the two.
    """
    from neuraldbg.reasoning.couplings import couplings as couple
    from neuraldbg.reasoning.rank import hypotheses
    from neuraldbg.reasoning.view import CaseView

    view = CaseView(trace)
    return couple(view, window) if hypotheses(view) else []
