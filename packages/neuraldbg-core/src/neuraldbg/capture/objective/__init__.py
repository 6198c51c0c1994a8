# SPDX-License-Identifier: MIT
"""What the loss is, what it received and what it reaches: read from the autograd graph."""

from __future__ import annotations

from neuraldbg.capture.objective.audit import ObjectiveAudit, is_due
from neuraldbg.capture.objective.graph import (
    LayerFlow,
    Structure,
    is_foreign,
    reaches,
    trace_structure,
)
from neuraldbg.capture.objective.perturb import probe

__all__ = [
    "LayerFlow",
    "ObjectiveAudit",
    "Structure",
    "is_due",
    "is_foreign",
    "probe",
    "reaches",
    "trace_structure",
]
