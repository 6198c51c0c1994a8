# SPDX-License-Identifier: MIT
"""Exceptions that say themselves what was wrong, and which ones are worth an examination."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from neuraldbg.capture.microscope import report
from neuraldbg.capture.microscope.verdict import Verdict

if TYPE_CHECKING:
    from neuraldbg.capture.microscope.rerun import Paths
    from neuraldbg.schema.facts import Observation

SILENT = (
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
    StopIteration,
    MemoryError,
    torch.OutOfMemoryError,
)
"""Exceptions that no NaN raises."""
FEW_VALUES = re.compile(r"Expected more than 1 (value per channel|spatial element) when training")
SINGULAR = re.compile(
    r"singular|not positive-definite|failed to converge|ill-conditioned", re.IGNORECASE
)


def is_telling(error: BaseException) -> bool:
    """Whether a NaN or Inf can have led to this exception."""
    return not isinstance(error, SILENT)


def examine_raise(error: BaseException, step: int, paths: Paths) -> list[Observation]:
    """Return what the message itself says: batch statistics of one value, a singular matrix."""
    message = str(error)
    layer = raising_layer(error, paths)
    if isinstance(error, ValueError) and FEW_VALUES.search(message):
        verdict = Verdict("batch_norm", "single_sample", message, "single_sample_statistics", 0.95)
        return [report.birth(step, layer, "forward", verdict, paths.kinds)]
    if isinstance(error, LinAlgError) and SINGULAR.search(message):
        operation = (
            message.partition(":")[0].removeprefix("torch.").removeprefix("linalg.").strip()
            or "linalg"
        )
        verdict = Verdict(operation, "singular_matrix", message, None, 0.5)
        return [
            report.birth(
                step, layer, "forward" if layer is not None else "loss", verdict, paths.kinds
            )
        ]
    return []


def raising_layer(error: BaseException, paths: Paths) -> str | None:
    """Return the path of the innermost watched module in the traceback."""
    layer, trace = None, error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in paths.of:
            layer = paths.of[id(owner)]
        trace = trace.tb_next
    return layer
