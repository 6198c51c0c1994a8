# SPDX-License-Identifier: MIT
"""NaN in the input: the batch that enters the model holds NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.inputs import broken_input
from neuraldbg.schema.facts import InputStat

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import Assessment
    from neuraldbg.reasoning.view import CaseView


def assess(view: CaseView) -> Assessment | None:
    """Report the first batch with NaN, where what follows is not finite either."""
    return broken_input(view, InputStat.NAN, "nan_in_input", "NaN")
