# SPDX-License-Identifier: MIT
"""From what an examination found to `Observation`s: kinds, words and figures of the contract."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor

from neuraldbg.capture.microscope.provenance import Birth, Leaf
from neuraldbg.capture.microscope.verdict import NAN, Verdict, describe_nonfinite, flags, words_of
from neuraldbg.schema.facts import Observation

SCHEDULE = re.compile(r"alpha|beta|sigma|snr|noise|schedule", re.IGNORECASE)
"""Names under which diffusion schedules are kept."""
ROWS_FOR_COLUMN = 4
"""Rows that must all be broken in a column before it is called a broken feature. Heuristic: fewer
rows can miss the same value by chance."""


def birth(
    step: int, layer: str | None, phase: str, verdict: Verdict, kinds: Mapping[str, str], note: str = ""
) -> Observation:
    """Return `nonfinite_birth`: an operation made a NaN or Inf of finite values."""
    words = {
        "operation": verdict.operation,
        "phase": phase,
        "mechanism": verdict.mechanism,
        "argument": verdict.argument,
    }
    if verdict.cause is not None:
        words["cause"] = verdict.cause
    if layer is not None and layer in kinds:
        words["module_kind"] = kinds[layer]
    if note:
        words["note"] = note
    figures = {name: float(value) for name, value in verdict.figures.items() if not math.isnan(value)}
    figures["confidence"] = verdict.confidence
    return Observation(kind="nonfinite_birth", step=step, layer=layer, figures=figures, words=words)


def from_source(step: int, source: Birth | Leaf, kinds: Mapping[str, str], root: str, note: str = "") -> Observation:
    """Return the observation for what a re-run found."""
    if isinstance(source, Birth):
        verdict = source.verdict or Verdict(
            source.operation, "nonfinite", f"{source.operation} made a {words_of(source.found)} of finite values",
            None, 0.3,
        )
        return birth(step, source.layer, source.phase, verdict, kinds, note)
    if source.kind == "input":
        return nonfinite_input(step, root, source.name, source.tensor)
    if source.kind in {"parameter", "buffer"}:
        full = ".".join(part for part in (root, source.name) if part)
        return nonfinite_parameter(step, full, source.tensor, source.kind)
    words, figures = describe_nonfinite(source.tensor)
    verdict = Verdict("constant", "nonfinite_constant", f"a constant holds {words}", None, 0.3, figures)
    return birth(step, root, "forward", verdict, kinds, note)


def nonfinite_input(step: int, model: str, name: str, tensor: Tensor) -> Observation:
    """Return `nonfinite_input`: the batch brought it."""
    found = flags(tensor)
    text, figures = describe_nonfinite(tensor)
    words = {"name": f"{model}:{name}", "value": "nan" if found & NAN else "inf", "phase": "input", "argument": text}
    words["cause"] = "nan_in_input" if found & NAN else "inf_in_input"
    figures["confidence"] = 0.95
    rows, columns = _pattern(tensor)
    figures |= {"rows": rows, "columns": columns}
    if tensor.dim() == 2 and tensor.shape[0] >= ROWS_FOR_COLUMN and rows == tensor.shape[0] > 0:
        broken = (~torch.isfinite(tensor)).all(0)
        if int(broken.sum()) == columns and columns < tensor.shape[1]:
            words["pattern"] = "whole_columns"
            words["alternative"] = "zero_variance_feature"
            words["argument"] = f"{text}: feature {int(broken.nonzero()[0])} in every row"
    return Observation(kind="nonfinite_input", step=step, layer=None, figures=figures, words=words)


def _pattern(tensor: Tensor) -> tuple[float, float]:
    bad = ~torch.isfinite(tensor)
    if bad.dim() < 2:
        return float(bad.sum()), 1.0
    flat = bad.flatten(1, -1) if bad.dim() == 2 else bad.movedim(1, -1).flatten(1, -2).any(1)
    rows = bad.flatten(1).any(1).sum()
    return float(rows), float(flat.any(0).sum())


def nonfinite_parameter(step: int, name: str, tensor: Tensor, kind: str = "parameter") -> Observation:
    """Return `nonfinite_parameter`: it was broken before this forward began."""
    text, figures = describe_nonfinite(tensor)
    layer, _, last = name.rpartition(".")
    words = {"name": name, "phase": kind, "value": "nan" if figures["nan"] else "inf", "argument": text,
             "dtype": str(tensor.dtype)[6:]}
    if kind == "buffer" and SCHEDULE.search(last):
        words["cause"] = "noise_schedule_invalid"
        figures["confidence"] = 0.7
    return Observation(kind="nonfinite_parameter", step=step, layer=layer, figures=figures, words=words)


def unlocated(step: int, phase: str, note: str) -> Observation:
    """Return `nonfinite_unlocated`: seen, and where it was born could not be said."""
    words = {"phase": phase, "note": note} if note else {"phase": phase}
    return Observation(kind="nonfinite_unlocated", step=step, layer=None, figures={}, words=words)
