# SPDX-License-Identifier: MIT
"""The recorded data flow: who feeds whom, in which order, and what lies between."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from neuraldbg.schema.run import INPUT, LayerInfo, LayerRole

if TYPE_CHECKING:
    from neuraldbg.schema.run import RunInfo

WEIGHTED = frozenset(
    {
        LayerRole.LINEAR,
        LayerRole.CONVOLUTION,
        LayerRole.RECURRENT,
        LayerRole.ATTENTION,
        LayerRole.EMBEDDING,
    }
)
PASSIVE = frozenset({LayerRole.DROPOUT, LayerRole.POOLING, LayerRole.CONTAINER})


class Flow:
    """Layers by path, their order of execution, and who is upstream of whom."""

    def __init__(self, run: RunInfo) -> None:
        """Index the layers of a run."""
        self.run = run
        self.row = {layer.path: i for i, layer in enumerate(run.layers)}
        self.info = {layer.path: layer for layer in run.layers}

    @cached_property
    def executed(self) -> list[LayerInfo]:
        """Layers that ran, in the order of their first run."""
        ran = [layer for layer in self.run.layers if layer.order >= 0]
        return sorted(ran or self.run.layers, key=lambda layer: (layer.order, self.row[layer.path]))

    @cached_property
    def place(self) -> dict[str, int]:
        """Path -> place in the order of execution; layers that never ran come last."""
        order = {layer.path: i for i, layer in enumerate(self.executed)}
        return {layer.path: order.get(layer.path, len(order)) for layer in self.run.layers}

    @cached_property
    def matrices(self) -> dict[str, list[int]]:
        """Layer -> rows of its trainable parameters with two or more dimensions."""
        rows: dict[str, list[int]] = {}
        for row, parameter in enumerate(self.run.parameters):
            if len(parameter.shape) > 1 and parameter.is_trainable:
                rows.setdefault(parameter.layer, []).append(row)
        return rows

    @cached_property
    def weighted(self) -> list[LayerInfo]:
        """Executed layers that own a trainable matrix, in order, norms left out."""
        return [
            layer
            for layer in self.executed
            if layer.path in self.matrices and layer.role is not LayerRole.NORMALIZATION
        ]

    def parents(self, path: str) -> tuple[str, ...]:
        """Return the recorded parents; the previously executed layer where none were recorded."""
        info = self.info.get(path)
        if info is not None and info.parents:
            return info.parents
        place = self.place.get(path, 0)
        if 0 < place < len(self.executed):
            return (self.executed[place - 1].path,)
        return (INPUT,)

    @cached_property
    def _ancestors(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for layer in self.executed:
            above: set[str] = set()
            for parent in self.parents(layer.path):
                above.add(parent)
                above |= found.get(parent, frozenset())
            found[layer.path] = frozenset(above)
        return found

    def ancestors(self, path: str) -> frozenset[str]:
        """Return every layer (and `INPUT`) that feeds `path`, directly or not."""
        return self._ancestors.get(path, frozenset())

    def is_upstream(self, first: str, second: str) -> bool:
        """Whether `first` feeds `second`, directly or through others."""
        return first in self.ancestors(second)

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for layer in self.executed:
            for parent in self.parents(layer.path):
                found.setdefault(parent, []).append(layer.path)
        return found

    def children(self, path: str) -> list[str]:
        """Return the layers that read `path` directly, in the order of execution."""
        return self._children.get(path, [])

    @cached_property
    def entries(self) -> list[LayerInfo]:
        """Weighted layers that read the model's inputs, with only passive layers between."""
        open_ = {INPUT}
        found = []
        for layer in self.executed:
            if not open_ & set(self.parents(layer.path)):
                continue
            if layer.path in self.matrices:
                found.append(layer)
            elif layer.role in PASSIVE or layer.role is LayerRole.OTHER:
                open_.add(layer.path)
        return found

    @cached_property
    def is_input_normalized(self) -> bool:
        """Whether a normalisation is the first thing that the input meets."""
        open_ = {INPUT}
        for layer in self.executed:
            if not open_ & set(self.parents(layer.path)):
                continue
            if layer.role is LayerRole.NORMALIZATION:
                return True
            if layer.role in PASSIVE:
                open_.add(layer.path)
        return False

    @cached_property
    def outputs(self) -> list[LayerInfo]:
        """Layers whose output reaches the loss through no other; the last one where unknown."""
        marked = [layer for layer in self.executed if layer.is_output]
        return marked or self.executed[-1:]

    def frontier(self, paths: set[str]) -> list[str]:
        """Return those of `paths` that no other of them feeds, in order: where it began."""
        first = [p for p in paths if not self.ancestors(p) & paths]
        return sorted(first or paths, key=lambda p: self.place.get(p, 0))

    def between(self, path: str) -> list[LayerInfo]:
        """Return the layers downstream of `path` up to and including the next weighted ones."""
        found, todo = [], [path]
        for current in todo:
            for child in self.children(current):
                if child not in todo:
                    found.append(self.info[child])
                    if child not in self.matrices:
                        todo.append(child)
        return found

    @cached_property
    def has_normalization(self) -> bool:
        """Whether any normalisation layer runs."""
        return any(layer.role is LayerRole.NORMALIZATION for layer in self.executed)

    @cached_property
    def has_residual(self) -> bool:
        """Whether any layer reads a sum with a path around another layer."""
        return any(layer.has_residual for layer in self.executed)

    @cached_property
    def has_attention(self) -> bool:
        """Whether the model attends: an attention module, or layers named for it."""
        words = ("attn", "attention", "qkv", "q_proj", "query")
        return any(
            layer.role is LayerRole.ATTENTION
            or any(word in layer.path.lower() or word in layer.kind.lower() for word in words)
            for layer in self.executed
        )

    @cached_property
    def recurrent(self) -> list[LayerInfo]:
        """Recurrent layers, in order."""
        return [layer for layer in self.executed if layer.role is LayerRole.RECURRENT]

    def activation_of(self, path: str) -> str | None:
        """Return the activation that a layer's output goes through: its own or the next one's."""
        info = self.info[path]
        if info.activation:
            return info.activation
        for child in self.children(path):
            kid = self.info[child]
            if kid.role is LayerRole.ACTIVATION:
                return kid.activation
        return None
