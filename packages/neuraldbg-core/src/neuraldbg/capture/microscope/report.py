# SPDX-License-Identifier: MIT
"""From what an examination found to `Observation`s: kinds, words and figures of the contract."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neuraldbg.capture.microscope.callers import caller_tensors
from neuraldbg.capture.microscope.origin import Birth, Leaf
from neuraldbg.capture.microscope.verdict import (
    NAN,
    Verdict,
    count,
    describe_nonfinite,
    flags,
    words_of,
)
from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEDULE = re.compile(r"alpha|beta|a_?bar", re.IGNORECASE)
"""Names under which diffusion schedules are kept."""
ROOT = "root_of_negative"
"""What a mixture by a schedule does where alpha-bar or its complement is negative."""
ROWS_FOR_COLUMN = 4
"""Rows that must all be broken in a column before it is called a broken feature. Heuristic: fewer
rows can miss the same value by chance. So many levels, too, must lie on either side of a limit."""


def birth(
    step: int,
    layer: str | None,
    phase: str,
    verdict: Verdict,
    kinds: Mapping[str, str],
    note: str = "",
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
    figures = {
        name: float(value) for name, value in verdict.figures.items() if not math.isnan(value)
    }
    figures["confidence"] = verdict.confidence
    return Observation(kind="nonfinite_birth", step=step, layer=layer, figures=figures, words=words)


def from_source(
    step: int,
    source: Birth | Leaf,
    kinds: Mapping[str, str],
    root: str,
    note: str = "",
    beside: Iterable[object] = (),
) -> Observation:
    """Return the observation for what a re-run found; `beside`: all arguments of the forward."""
    if isinstance(source, Birth):
        verdict = source.verdict or Verdict(
            source.operation,
            "nonfinite",
            f"{source.operation} made a {words_of(source.found)} of finite values",
            None,
            0.3,
        )
        return birth(step, source.layer, source.phase, _by_schedule(verdict), kinds, note)
    if source.kind == "input":
        return nonfinite_input(step, root, source.name, source.tensor, beside)
    if source.kind in {"parameter", "buffer"}:
        full = ".".join(part for part in (root, source.name) if part)
        return nonfinite_parameter(step, full, source.tensor, source.kind)
    words, figures = describe_nonfinite(source.tensor)
    verdict = Verdict(
        "constant", "nonfinite_constant", f"a constant holds {words}", None, 0.3, figures
    )
    return birth(step, root, "forward", verdict, kinds, note)


def _by_schedule(verdict: Verdict) -> Verdict:
    """Return a verdict on the root of a negative number with the schedule that it came from."""
    if verdict.mechanism != ROOT or verdict.cause is not None:
        return verdict
    if not (schedule := broken_schedule()):
        return verdict
    return replace(
        verdict,
        cause="noise_schedule_invalid",
        argument=f"{verdict.argument}; {schedule}",
        confidence=0.85,
    )


def nonfinite_input(
    step: int, model: str, name: str, tensor: Tensor, beside: Iterable[object] = ()
) -> Observation:
    """Return `nonfinite_input`: the batch brought it. `beside`: what else entered."""
    found = flags(tensor)
    text, figures = describe_nonfinite(tensor)
    words = {
        "name": f"{model}:{name}",
        "value": "nan" if found & NAN else "inf",
        "phase": "input",
        "argument": text,
    }
    words["cause"] = "nan_in_input" if found & NAN else "inf_in_input"
    figures["confidence"] = 0.95
    figures["rows"] = (
        float((~torch.isfinite(tensor)).flatten(1).any(1).sum()) if tensor.dim() > 1 else 1.0
    )
    if feature := broken_feature(tensor):
        words["pattern"] = "whole_features"
        words["argument"] = f"{text}: {feature} in every row"
        words["alternative"], words["cause"] = words["cause"], "zero_variance_feature"
        figures["confidence"] = 0.7
    if schedule := broken_schedule() or broken_level(tensor, beside):
        words["alternative"], words["cause"] = words["cause"], "noise_schedule_invalid"
        words["argument"] = f"{text}; {schedule}"
        figures["confidence"] = 0.8
    return Observation(kind="nonfinite_input", step=step, layer=None, figures=figures, words=words)


def broken_feature(tensor: Tensor) -> str:
    """Return which features are broken in every row and no other is, in words, or nothing."""
    bad = ~torch.isfinite(tensor)
    if not 2 <= bad.dim() <= 4 or bad.shape[0] < ROWS_FOR_COLUMN:
        return ""
    for dim in (bad.dim() - 1, 1):
        others = [d for d in range(bad.dim()) if d != dim]
        whole, some = bad.all(others), bad.any(others)
        if bool((whole == some).all()) and bool(whole.any()) and not bool(whole.all()):
            places = whole.nonzero().flatten()[:4].tolist()
            return f"feature{'s' * (len(places) > 1)} {', '.join(map(str, places))}"
    return ""


def broken_level(tensor: Tensor, beside: Iterable[object]) -> str:
    """Return past which level exactly the rows are broken, in words, or nothing.

    A noised input comes with one number per sample, its step or noise level. Where the schedule is
    out of range from some level on, the rows beyond it are broken and no other is; rows that happen
    to be broken are not sorted by a number that stands beside them.
    """
    if tensor.dim() < 2 or len(tensor) < 2 * ROWS_FOR_COLUMN:
        return ""
    bad = (~torch.isfinite(tensor)).flatten(1).any(1)
    for other in beside:
        if not isinstance(other, Tensor) or other is tensor or other.numel() != len(bad):
            continue
        levels = other.detach().flatten().double()
        beyond, within = levels[bad], levels[~bad]
        if min(len(set(beyond.tolist())), len(set(within.tolist()))) < ROWS_FOR_COLUMN:
            continue
        if float(beyond.min()) > float(within.max()):
            return f"every row from the level {float(beyond.min()):.3g} on is broken, and no other"
        if float(beyond.max()) < float(within.min()):
            return f"every row up to the level {float(beyond.max()):.3g} is broken, and no other"
    return ""


def broken_schedule() -> str:
    """Return what is wrong with a diffusion schedule in the callers' names, or nothing.

    A schedule is a 1-D tensor of at least 8 values under a usual name: betas lie inside (0, 1),
    alphas and their products inside (0, 1].
    """
    for name, tensor in caller_tensors(with_attributes=True):
        is_series = tensor.dim() == 1 and tensor.numel() >= 8 and tensor.is_floating_point()
        if not is_series or not (SCHEDULE.search(name) or _decays_from_one(tensor)):
            continue
        values = tensor.detach()
        if count(wrong := (values <= 0) | (values > 1) | values.isnan()):
            return f"`{name}` has {count(wrong)} of {values.numel()} values outside (0, 1]"
    return ""


def _decays_from_one(tensor: Tensor) -> bool:
    """Whether a series falls from about 1 as a product of factors does, not as a ramp."""
    values = tensor.detach()
    first = values[: max(4, values.numel() // 2)]
    steps = first.diff()
    is_ramp = bool((steps - steps.mean()).abs().max() <= 1e-3 * steps.abs().max())
    return 0.5 < float(first[0]) <= 1 and bool((steps <= 0).all()) and not is_ramp


def nonfinite_parameter(
    step: int, name: str, tensor: Tensor, kind: str = "parameter"
) -> Observation:
    """Return `nonfinite_parameter`: it was broken before this forward began."""
    text, figures = describe_nonfinite(tensor)
    layer, _, last = name.rpartition(".")
    words = {
        "name": name,
        "phase": kind,
        "value": "nan" if figures["nan"] else "inf",
        "argument": text,
        "dtype": str(tensor.dtype)[6:],
    }
    if kind == "buffer" and SCHEDULE.search(last):
        words["cause"] = "noise_schedule_invalid"
        figures["confidence"] = 0.7
    return Observation(
        kind="nonfinite_parameter", step=step, layer=layer, figures=figures, words=words
    )


def unlocated(step: int, phase: str, note: str) -> Observation:
    """Return `nonfinite_unlocated`: seen, and where it was born could not be said."""
    words = {"phase": phase, "note": note} if note else {"phase": phase}
    return Observation(kind="nonfinite_unlocated", step=step, layer=None, figures={}, words=words)
