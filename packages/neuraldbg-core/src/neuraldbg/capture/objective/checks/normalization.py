# SPDX-License-Identifier: MIT
"""Batch normalisation: over how many values, and how far the batch is from the running statistics.

Read from what the graph saved anyway, on audited steps. No fault by itself: figures for the causes.
A gap that stays means that training and evaluation see two different functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

MOST = 8
"""Layers of one model that are looked at."""
NAMES = frozenset({"NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm"})
SIZE_LIMIT = 1 << 22
"""Elements above which the statistics of a batch in eval mode are not computed."""


class NormalizationFigures:
    """Measures each batch normalisation on the first audits and then on those at twice the step."""

    def __init__(self) -> None:
        self._next: dict[str | None, int] = {}

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at every batch normalisation with running statistics."""
        seen: set[str | None] = set()
        for place, name in enumerate(view.tape.names):
            if name not in NAMES:
                continue
            layer = view.tape.marks.get(place, (view.layer_of(place),))[0]
            if layer in seen or len(seen) >= MOST or view.step < self._next.get(layer, 0):
                continue
            figures = _figures(view, place)
            if figures:
                seen.add(layer)
                since = view.step - view.first_step
                self._next[layer] = max(view.step + 1, 2 * since + view.first_step)
                yield view.observation("normalization", layer, confidence=1.0, figures=figures)


def _figures(view: View, place: int) -> dict[str, float]:
    """Return the figures of one layer, nothing where it keeps no running statistics.

    `mean_gap` is in running standard deviations (RMS over channels), `variance_gap` the median
    absolute log of the variances' ratio.
    """
    tape = view.tape
    given = tape.saved(place, "input")
    mean, variance = tape.saved(place, "running_mean"), tape.saved(place, "running_var")
    tensors = (given, mean, variance)
    if not all(isinstance(t, torch.Tensor) and t.device.type == "cpu" for t in tensors):
        return {}
    is_training = bool(tape.saved(place, "training"))
    epsilon = float(tape.saved(place, "eps") or 1e-5)
    if is_training:
        own = tape.saved(place, "result1").double()
        spread = tape.saved(place, "result2").double().clamp(min=1e-12) ** -2 - epsilon
    elif given.numel() <= SIZE_LIMIT:
        dims = [d for d in range(given.ndim) if d != 1]
        spread, own = torch.var_mean(given.detach().double(), dim=dims, correction=0)
    else:
        return {}
    running = variance.double().clamp(min=0) + epsilon
    gap = (own - mean.double()) / running.sqrt()
    return {
        "values": given.numel() / max(given.shape[1], 1),
        "training": float(is_training),
        "mean_gap": float(gap.square().mean().sqrt()),
        "variance_gap": float(((spread.clamp(min=0) + epsilon) / running).log().abs().median()),
    }
