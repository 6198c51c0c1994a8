# SPDX-License-Identifier: MIT
"""The author's kit: facts without torch, small recorded runs, and a conformance check.

Example:
    >>> from neuraldbg.testing import feed, make_facts, make_run
    >>> run = make_run("embed", "head")
    >>> facts = make_facts(run, step=3, loss=0.5)
    >>> facts.loss, facts.activation.shape
    (0.5, (2, 14))
"""

from __future__ import annotations

from neuraldbg.testing.build import make_facts, make_run
from neuraldbg.testing.conformance import check_detector
from neuraldbg.testing.feeding import feed, replay
from neuraldbg.testing.runs import RUNS, recorded_run, steps_of

__all__ = [
    "RUNS",
    "check_detector",
    "feed",
    "make_facts",
    "make_run",
    "recorded_run",
    "replay",
    "steps_of",
]
