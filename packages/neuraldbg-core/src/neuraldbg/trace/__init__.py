# SPDX-License-Identifier: MIT
"""The trace: one crash-safe SQLite file (or memory) per watched run and rank."""

from __future__ import annotations

from neuraldbg.trace.reader import Trace, open_trace
from neuraldbg.trace.replay import step_facts
from neuraldbg.trace.table import LEDGER_FIELDS, FactTable, Series
from neuraldbg.trace.writer import TraceWriter

__all__ = [
    "LEDGER_FIELDS",
    "FactTable",
    "Series",
    "Trace",
    "TraceWriter",
    "open_trace",
    "step_facts",
]
