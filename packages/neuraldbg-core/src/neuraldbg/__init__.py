# SPDX-License-Identifier: MIT
"""NeuralDBG: a flight recorder and causal debugger for PyTorch training.

Importing the package costs nothing: neither torch nor numpy is loaded before a name that needs
it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuraldbg.causes import Cause as Cause
    from neuraldbg.detector import Detector as Detector
    from neuraldbg.hookspecs import hookimpl as hookimpl
    from neuraldbg.inquiry import load_trace as load_trace
    from neuraldbg.inquiry import merge_traces as merge_traces
    from neuraldbg.schema.events import SemanticEvent as SemanticEvent
    from neuraldbg.schema.facts import StepFacts as StepFacts
    from neuraldbg.schema.hypotheses import CausalHypothesis as CausalHypothesis
    from neuraldbg.schema.hypotheses import Coupling as Coupling
    from neuraldbg.schema.vocabulary import ActivationHealth as ActivationHealth
    from neuraldbg.schema.vocabulary import DataHealth as DataHealth
    from neuraldbg.schema.vocabulary import EventType as EventType
    from neuraldbg.schema.vocabulary import FailureType as FailureType
    from neuraldbg.schema.vocabulary import GradientHealth as GradientHealth
    from neuraldbg.schema.vocabulary import OptimizerHealth as OptimizerHealth
    from neuraldbg.session import NeuralDbg as NeuralDbg
    from neuraldbg.settings import Settings as Settings

__version__ = "2.0.0"

_HOMES = {
    "ActivationHealth": "neuraldbg.schema.vocabulary",
    "CausalHypothesis": "neuraldbg.schema.hypotheses",
    "Cause": "neuraldbg.causes",
    "Coupling": "neuraldbg.schema.hypotheses",
    "DataHealth": "neuraldbg.schema.vocabulary",
    "Detector": "neuraldbg.detector",
    "EventType": "neuraldbg.schema.vocabulary",
    "FailureType": "neuraldbg.schema.vocabulary",
    "GradientHealth": "neuraldbg.schema.vocabulary",
    "NeuralDbg": "neuraldbg.session",
    "OptimizerHealth": "neuraldbg.schema.vocabulary",
    "SemanticEvent": "neuraldbg.schema.events",
    "Settings": "neuraldbg.settings",
    "StepFacts": "neuraldbg.schema.facts",
    "hookimpl": "neuraldbg.hookspecs",
    "load_trace": "neuraldbg.inquiry",
    "merge_traces": "neuraldbg.inquiry",
}

__all__ = sorted([*_HOMES, "__version__"])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'neuraldbg' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return list(__all__)
