# SPDX-License-Identifier: LicenseRef-Proprietary
"""`Case`: one run under examination, with everything computed once that findings share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from neuraldbg.reasoning.rank import assess_all
from neuraldbg.reasoning.view import CaseView

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.trace import Trace


class Case:
    """A trace, core's view of it, and what core's own specialists say."""

    def __init__(self, trace: Trace) -> None:
        """Wrap a trace, live or loaded. Nothing is read before it is asked for."""
        self.trace = trace
        self.view = CaseView(trace)

    @cached_property
    def assessments(self) -> tuple[Assessment, ...]:
        """What every one of core's specialists had to say, before they are weighed."""
        return tuple(assess_all(self.view))
