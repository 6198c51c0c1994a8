# SPDX-License-Identifier: MIT
"""What the loss is, what it received and what it reaches: read from the autograd graph."""

from __future__ import annotations

from neuraldbg.capture.objective.audit import ObjectiveAudit
from neuraldbg.capture.objective.graph import Structure, trace_structure

try:  # TEMPORARY until perturb.py lands
    from neuraldbg.capture.objective.perturb import probe
except ImportError:
    def probe(*args, **kwargs): return []

__all__ = ["ObjectiveAudit", "Structure", "probe", "trace_structure"]
