# SPDX-License-Identifier: MIT
"""Softmax over the wrong dimension: over samples, over a dimension of one, over queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.objective.activations import VIEWS, WEIGHTED
from neuraldbg.capture.objective.reading import axis, is_log_distribution, rows, signed
from neuraldbg.capture.objective.tape import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

READERS = 12
"""Operations after a softmax that are looked at for what its weights are used for."""
_KINDS = frozenset({"Softmax", "LogSoftmax"})
_SCORING = frozenset({*VIEWS, "MaskedFill", "Where", "Tanh", "NativeDropout"})
_KEEPING = frozenset({"Expand", "NativeDropout", "Mul", "ToCopy", "Clone"})
_TURNS = frozenset({"Transpose", "Permute", "T", "Swapaxes", "Swapdims", "MoveDim"})


class SoftmaxDim:
    """Each softmax of the graph is asked over what it normalises.

    Silent for attention over one key, pooling over instances (one row of output per bag),
    time-first layouts, square matrices of pairs, and one-dimensional weights.
    """

    def __init__(self) -> None:
        self._told: set[tuple[str | None, str]] = set()

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at every softmax node."""
        for place, name in enumerate(view.tape.names):
            if name not in _KINDS:
                continue
            result = view.tape.saved(place, "result")
            if not isinstance(result, torch.Tensor):
                continue
            dim = axis(view.tape.saved(place, "dim"), result.ndim)
            if dim is None:
                continue
            found = self._judge(view, place, result, dim)
            layer = view.layer_of(place)
            if found and (layer, found[0]) not in self._told:
                self._told.add((layer, found[0]))
                yield view.observation(
                    "softmax_dim",
                    layer,
                    confidence=found[1],
                    figures={"dim": dim, "size": result.shape[dim], "ndim": result.ndim},
                    cause="softmax_wrong_dim",
                    over=found[0],
                    shape=str(list(result.shape)),
                )

    def _judge(
        self, view: View, place: int, result: torch.Tensor, dim: int
    ) -> tuple[str, float] | None:
        shape = tuple(result.shape)
        if shape[dim] == 1 and result.numel() > 1 and self._is_scored(view, place):
            return "one value", 0.9
        if self._is_over_samples(view, place, shape, dim):
            return "samples", 0.9
        if self._is_over_queries(view, place, dim, len(shape)):
            return "queries", 0.8
        if self._misses_classes(view, place):
            return "not the classes", 0.9
        return None

    def _is_scored(self, view: View, place: int) -> bool:
        """Return whether a layer with one output made the scores: not attention over one key."""
        tape, below = view.tape, tape_input(view, place)
        below = tape.through(below, _SCORING)
        if below == NONE or tape.names[below] not in WEIGHTED:
            return False
        return any(i != NONE and self._is_leaf(view, i) for i in tape.inputs[below])

    def _is_leaf(self, view: View, place: int) -> bool:
        leaf = view.tape.through(place, limit=4)
        return leaf != NONE and view.tape.names[leaf] == "AccumulateGrad"

    def _is_over_samples(self, view: View, place: int, shape: tuple[int, ...], dim: int) -> bool:
        samples = view.batch_size
        if dim != 0 or len(shape) < 2 or samples < 2 or shape[0] != samples:
            return False
        if shape[1] == samples or shape[dim] == 1:
            return False
        predicted = {view.tape.shape(t.feed) for t in view.terms if t.feed != NONE}
        heads = {s[0] for s in predicted if s}
        if samples not in heads or (len(shape) > 2 and shape[1] in heads):
            return False
        return not self._feeds_sum_over_samples(view, place)

    def _feeds_sum_over_samples(self, view: View, place: int) -> bool:
        """Return whether the weights are summed over dimension 0: a bag is pooled."""
        todo = list(view.tape.outputs[place])
        for seen, node in enumerate(todo):
            if seen > READERS:
                return False
            name = view.tape.names[node]
            if name == "Sum":
                dims = view.tape.saved(node, "dim") or ()
                if isinstance(dims, tuple) and len(dims) == 1 and signed(dims[0]) == 0:
                    return True
            if name in {"Mul", "T", "Transpose", "Mm", *VIEWS}:
                if name == "Mm" and node not in view.above:
                    shape = view.tape.shape(node)
                    return bool(shape) and view.batch_size not in (shape or ())
                todo.extend(view.tape.outputs[node])
        return False

    def _is_over_queries(self, view: View, place: int, dim: int, ndim: int) -> bool:
        """Return whether a product of queries and keys is normalised along what is not summed."""
        tape = view.tape
        below = tape.through(tape_input(view, place), frozenset({*_SCORING, "Mul", "Div"}))
        if ndim < 3 or below == NONE or tape.names[below] not in {"Bmm", "Baddbmm"}:
            return False
        if any(i != NONE and self._is_leaf(view, i) for i in tape.inputs[below]):
            return False
        from_end, node = ndim - dim, place
        for _ in range(8):
            readers = [r for r in tape.outputs[node] if tape.names[r] not in {"Sum", "Mean", "Log"}]
            if len(readers) != 1:
                return False
            if tape.names[readers[0]] == "Bmm":
                contracted = 1 if tape.inputs[readers[0]][0] == node else 2
                return from_end in {1, 2} and from_end != contracted
            turned = self._follow(view, node, readers[0], ndim, from_end)
            if turned is None:
                return False
            from_end, node = turned, readers[0]
        return False

    def _follow(self, view: View, node: int, reader: int, ndim: int, from_end: int) -> int | None:
        """Return where the dimension stands after `reader`, counted from the end, None if lost."""
        tape, name = view.tape, view.tape.names[reader]
        if name in _TURNS:
            turned = {signed(tape.saved(reader, d)) for d in ("dim0", "dim1")}
            if turned not in ({-1, -2}, {ndim - 1, ndim - 2}):
                return None
            return 3 - from_end if from_end in {1, 2} else from_end
        if name in {"View", "UnsafeView", "ReshapeAlias"}:
            before, after = tape.shape(node), tape.shape(reader)
            return from_end if before and after and before[-2:] == after[-2:] else None
        return from_end if name in _KEEPING else None

    def _misses_classes(self, view: View, place: int) -> bool:
        """Return whether an NLL loss reads it and finds no distribution per sample."""
        if view.tape.names[place] != "LogSoftmax":
            return False
        for term in view.terms:
            if term.name == "cross_entropy" and term.feed == place:
                values = rows(view.tape.saved(term.place, "self"))
                if values is None or values.ndim < 2:
                    return False
                # rows of a softmax over samples were thinned out: compare the dimension it used
                return not is_log_distribution(values, 1)
        return False


def tape_input(view: View, place: int) -> int:
    """Return the first input of a node, `NONE` where it has none."""
    below = view.tape.inputs[place]
    return below[0] if below else NONE
