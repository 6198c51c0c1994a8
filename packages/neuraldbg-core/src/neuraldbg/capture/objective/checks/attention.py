# SPDX-License-Identifier: MIT
"""Attention as it is computed, whoever wrote it: how sharp it is, and how far its logits reach.

Read from what the graph saved anyway: the result of a softmax whose weights average values, or the
queries and keys of a fused call, a few samples of them. No fault by itself: figures for the causes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.objective.activations import VIEWS
from neuraldbg.capture.objective.reading import axis, rows
from neuraldbg.capture.objective.tape import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

FEWEST = 3
"""Keys below which sharp weights mean little."""
MOST = 8
"""Attentions of one model that are looked at."""
SAMPLES, QUERIES = 4, 64
FUSED = "ScaledDotProduct"
_KEEPING = frozenset({"Expand", "NativeDropout", "ToCopy", "Clone", "Transpose", *VIEWS})


class AttentionFigures:
    """Measures each attention on the first audits and then on those at twice the step."""

    def __init__(self) -> None:
        self._next: dict[str | None, int] = {}

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at every softmax that averages values, and at every fused attention."""
        seen: set[str | None] = set()
        for place, name in enumerate(view.tape.names):
            is_fused = name.startswith(FUSED)
            if not is_fused and name != "Softmax":
                continue
            layer = _layer(view, place)
            if layer in seen or len(seen) >= MOST or view.step < self._next.get(layer, 0):
                continue
            weights = _fused(view, place) if is_fused else _plain(view, place)
            if weights is None or weights.shape[-1] < FEWEST:
                continue
            seen.add(layer)
            self._next[layer] = max(
                view.step + 1, 2 * (view.step - view.first_step) + view.first_step
            )
            yield view.observation("attention", layer, confidence=1.0, figures=_figures(weights))


def _layer(view: View, place: int) -> str | None:
    """Return the module that attends: the one whose output this is, or that encloses a fused call.

    Else the layer that made the scores.
    """
    if marks := view.tape.marks.get(place):
        return marks[0]
    node = place
    for _ in range(8):
        readers = view.tape.outputs[node]
        if not readers:
            break
        node = readers[0]
        if marks := view.tape.marks.get(node):
            module = type(view.modules.get(marks[0])).__name__
            return marks[0] if module == "MultiheadAttention" else view.layer_of(place)
    return view.layer_of(place)


def _figures(weights: torch.Tensor) -> dict[str, float]:
    """Return how sharp the rows of `weights`, `[..., K]` summing to 1, are."""
    keys = weights.shape[-1]
    flat = weights.reshape(-1, keys)
    entropy = -(flat * flat.clamp(min=1e-38).log()).sum(-1)
    logs = flat.clamp(min=1e-38).log()
    live = torch.where(flat > 0, logs, torch.zeros_like(logs))
    return {
        "keys": float(keys),
        "certain": float(flat.amax(-1).median()),
        "entropy_share": float(entropy.mean()) / math.log(keys),
        "logit_range": float((logs.amax(-1) - live.amin(-1)).median()),
    }


def _plain(view: View, place: int) -> torch.Tensor | None:
    """Return some rows of a softmax that averages values, keys last; None where it does not."""
    result = view.tape.saved(place, "result")
    if not isinstance(result, torch.Tensor) or result.ndim < 2 or place in view.above:
        return None
    dim = axis(view.tape.saved(place, "dim"), result.ndim)
    if dim is None or not _averages(view, place):
        return None
    part = rows(result if dim else result.movedim(0, -1), limit=QUERIES)
    if part is None:
        return None
    return part.movedim(dim, -1) if dim else part


def _averages(view: View, place: int) -> bool:
    """Return whether the weights multiply values that a layer made, not a stack of experts."""
    tape, todo = view.tape, list(view.tape.outputs[place])
    for seen, node in enumerate(todo):
        if seen > 12:
            return False
        name = tape.names[node]
        if name in _KEEPING:
            todo.extend(tape.outputs[node])
        elif name in {"Mul", "Bmm", "Mm", "Baddbmm"}:
            others = [tape.through(i, _KEEPING) for i in tape.inputs[node] if i != NONE]
            values = [i for i in others if i not in {NONE, place}]
            return any(tape.names[i] not in {"AccumulateGrad", "Stack", "Cat"} for i in values)
    return False


def _fused(view: View, place: int) -> torch.Tensor | None:
    """Return the weights that a fused attention gave a few samples, computed from what it kept."""
    query, key = (_part(view.tape.saved(place, name)) for name in ("query", "key"))
    if query is None or key is None or query.shape[-1] != key.shape[-1]:
        return None
    scale = view.tape.saved(place, "scale")
    scale = float(scale) if isinstance(scale, float) else query.shape[-1] ** -0.5
    if key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(max(1, query.shape[1] // key.shape[1]), 1)
    step = max(1, query.shape[-2] // QUERIES)
    logits = query[..., ::step, :] @ key.transpose(-1, -2) * scale
    mask = view.tape.saved(place, "attn_mask")
    if isinstance(mask, torch.Tensor):
        return None  # which keys are hidden would have to be read too
    if view.tape.saved(place, "is_causal"):
        at = torch.arange(0, query.shape[-2], step)[:, None]
        logits = logits.masked_fill(torch.arange(key.shape[-2]) > at, -math.inf)
        logits = logits[..., logits.shape[-2] // 2 :, :]
    return logits.softmax(-1)


def _part(tensor: Any) -> torch.Tensor | None:
    if not isinstance(tensor, torch.Tensor) or tensor.ndim != 4 or tensor.device.type != "cpu":
        return None
    return tensor.detach()[:SAMPLES].float()
