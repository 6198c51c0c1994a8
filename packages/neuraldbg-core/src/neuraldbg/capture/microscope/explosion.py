# SPDX-License-Identifier: MIT
"""Gradients that are finite, element by element, and too large for their norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neuraldbg.capture.microscope.verdict import Verdict, flags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neuraldbg.capture.microscope.provenance import Growth

EXPLOSION = 1e6
"""Growth of a gradient within one module that counts as an explosion. Heuristic: a layer changes
it by its gain, two orders at most; a recurrence of 20 steps with a factor of 2 by a million."""
LIMIT = math.sqrt(torch.finfo(torch.float32).max)
"""Norm in float32 whose square is the largest float32: 1.8e19."""


def judge_norm(
    named: Sequence[tuple[str, Tensor]], growth: Mapping[str, Growth]
) -> tuple[str, Verdict] | None:
    """Return the layer where finite gradients grew too large for their norm, None otherwise.

    Args:
        named: Gradients by the name of their parameter.
        growth: By module, how the gradient grew in its backward.
    """
    norms = {}
    for name, gradient in named:
        if flags(gradient):
            return None
        values = gradient.coalesce().values() if gradient.is_sparse else gradient
        norms[name] = float(torch.linalg.vector_norm(values.double()))
    if not norms or math.hypot(*norms.values()) < LIMIT / 2:
        return None
    name = max(norms, key=lambda one: norms[one])
    layer = name.rpartition(".")[0]
    words = (
        f"the gradient of {name} has norm {norms[name]:.3g}: finite, and too large to be squared"
    )
    figures = {"maximum": norms[name], "limit": LIMIT}
    grown = max(growth, key=lambda one: growth[one].ratio, default="")
    if grown in growth and growth[grown].ratio >= EXPLOSION:
        layer, words = grown, f"{growth[grown].words}; {words}"
        figures["growth"] = growth[grown].ratio
    return layer, Verdict("gradient norm", "gradient_overflow", words, None, 0.6, figures)
