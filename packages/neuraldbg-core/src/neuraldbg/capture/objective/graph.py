# SPDX-License-Identifier: MIT
"""What the graph behind the loss says of the model: data flow, activations, skips, depth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import torch

from neuraldbg.capture.objective.activations import (
    LAYOUT,
    NORMALIZATIONS,
    OPAQUE,
    VIEWS,
    WEIGHTED,
    activation_of,
)
from neuraldbg.capture.objective.tape import NODE_LIMIT, NONE, Tape, is_inside, record
from neuraldbg.schema.run import INPUT

ADDITIONS = frozenset({"Add", "Addcmul"})
CALL_LIMIT = 4_096
"""Layer calls and weight products told apart when skips are looked for. Heuristic: the sets are
bit masks, and this keeps the largest at half a kilobyte."""


@dataclass(frozen=True, slots=True)
class LayerFlow:
    """One layer as the graph saw it."""

    parents: tuple[str, ...]
    """Layers whose output it reads through no other layer; `INPUT` where it reads none."""
    activation: str | None
    """Activation function applied to its output (its own, where it is an activation)."""
    is_output: bool
    """Whether its output reaches the loss through no other layer."""
    has_residual: bool
    """Whether its input is a sum with a path around at least one other layer or weight."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The model as one backward pass will see it. Holds no tensor and no node."""

    layers: Mapping[str, LayerFlow] = field(default_factory=dict)
    """By path. A layer whose output carries no gradient to the loss is not in it."""
    reached: frozenset[int] = frozenset()
    """`id()` of every leaf tensor that the loss reaches: valid while those tensors live."""
    normalizations: tuple[str, ...] = ()
    """Layers whose output is that of a normalisation."""
    residual_adds: int = 0
    """Additions that join a branch with a path around it."""
    depth: int = 0
    """Weight layers on the longest path; a weight used several times counts once."""
    series: int = 0
    """Longest run of weight layers without a skip or a normalisation between them."""
    opaque: tuple[str, ...] = ()
    """Kinds of nodes that hide their content: reentrant checkpoints, compiled graphs."""
    nodes: int = 0
    is_complete: bool = True
    """False where the graph was larger than the limit, or hides a part of itself."""


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class _Flow:
    """One pass from the inputs up to the loss, one down: everything `Structure` needs."""

    def __init__(self, tape: Tape) -> None:
        count = len(tape.nodes)
        self.tape = tape
        self.paths = [INPUT, *dict.fromkeys(p for chain in tape.marks.values() for p in chain)]
        self.bit = {path: 1 << i for i, path in enumerate(self.paths)}
        self.parents: dict[str, int] = dict.fromkeys(self.paths, 0)
        self.near = [0] * count
        """Layers nearest below each node, as a bit mask over `paths`."""
        self.calls_near = [0] * count
        """The same over single calls of layers and weights."""
        self.calls_below = [0] * count
        """All calls below each node, itself included."""
        self.calls = 0
        self.skips: set[int] = set()
        self.summed: set[int] = set()
        self.has_residual: set[str] = set()
        self.reached: set[int] = set()
        self.seen_weights: set[int] = set()
        self.depth = [0] * count
        self.series = [0] * count
        self.longest = 0

    def rise(self) -> None:
        """From the inputs to the loss."""
        tape = self.tape
        for place in range(len(tape.nodes) - 1, -1, -1):
            below = [i for i in tape.inputs[place] if i != NONE]
            if not below and tape.names[place] == "AccumulateGrad":
                self._leaf(place)
                continue
            self._skip(place, below)
            self._layer(place, below)
            self._weight(place, below)

    def _leaf(self, place: int) -> None:
        import torch

        variable = self.tape.nodes[place].variable
        self.reached.add(id(variable))
        if not isinstance(variable, torch.nn.Parameter):
            self.near[place] = self.bit[INPUT]

    def _skip(self, place: int, below: list[int]) -> None:
        """Note whether `place` adds a branch to a path around it."""
        if self.tape.names[place] in ADDITIONS and len(below) == 2:
            for around, branch in (below, below[::-1]):
                near, over = self.calls_near[around], self.calls_below[branch]
                if near and near & over == near and near & ~self.calls_near[branch]:
                    self.skips.add(place)
                    self.summed.add(place)
                    return
        if place not in self.tape.marks and any(i in self.summed for i in below):
            self.summed.add(place)

    def _layer(self, place: int, below: list[int]) -> None:
        """Note what a layer reads, and what stands nearest below for those above it."""
        near = calls_near = calls_below = 0
        for i in below:
            near |= self.near[i]
            calls_near |= self.calls_near[i]
            calls_below |= self.calls_below[i]
        if NONE in self.tape.inputs[place] and self.tape.names[place] in {"Cat", "Stack"}:
            near |= self.bit[INPUT]
        chain = self.tape.marks.get(place, ())
        reads = near or self.bit[INPUT]
        for at, path in enumerate(chain):
            self.parents[path] |= reads
            if any(i in self.summed for i in below):
                self.has_residual.add(path)
            if not any(is_inside(other, path) for other in chain[:at]):
                reads = near = self.bit[path]
        weight = self._is_weight(place)
        if (chain or weight) and self.calls < CALL_LIMIT:
            calls_near = 1 << self.calls
            calls_below |= calls_near
            self.calls += 1
        self.near[place], self.calls_near[place] = near, calls_near
        self.calls_below[place] = calls_below

    def _is_weight(self, place: int) -> bool:
        return self.tape.names[place] in WEIGHTED and bool(self._weights(place))

    def _weights(self, place: int) -> list[int]:
        """Return `id()` of the matrices that the node at `place` multiplies by."""
        found = []
        for i in self.tape.inputs[place]:
            leaf = self.tape.through(i, _TO_WEIGHT, limit=6)
            if leaf != NONE and self.tape.names[leaf] == "AccumulateGrad":
                variable = self.tape.nodes[leaf].variable
                if variable.ndim > 1:
                    found.append(id(variable))
        return found

    def _weight(self, place: int, below: list[int]) -> None:
        depth = max((self.depth[i] for i in below), default=0)
        series = max((self.series[i] for i in below), default=0)
        if self.tape.names[place] in WEIGHTED:
            weights = self._weights(place)
            if weights and not self.seen_weights.issuperset(weights):
                self.seen_weights.update(weights)
                depth, series = depth + 1, series + 1
        if place in self.skips or self._is_normalization(place):
            series = 0
        self.longest = max(self.longest, series)
        self.depth[place], self.series[place] = depth, series

    def _is_normalization(self, place: int) -> bool:
        name = self.tape.names[place]
        if name in NORMALIZATIONS:
            return True
        return name == "Mul" and any(
            i != NONE and self.tape.names[i] == "Rsqrt" for i in self.tape.inputs[place]
        )

    def normalizations(self) -> tuple[str, ...]:
        """Return the layers that end in a normalisation, in the order of execution."""
        return tuple(
            self.tape.marks[place][0]
            for place in sorted(self.tape.marks, reverse=True)
            if self._is_normalization(self.tape.through(place))
        )


def outputs_of(tape: Tape) -> tuple[set[str], set[int]]:
    """Return the layers that reach the loss through no other layer, and the nodes above them.

    A module that returns a scalar is a loss, or a model with its own: it is looked through.
    """
    bare, found = {0}, set[str]()
    for place, below in enumerate(tape.inputs):
        if place not in bare:
            continue
        if place in tape.marks and tape.shape(place) != ():
            found.update(tape.marks[place])
            bare.discard(place)
            continue
        bare.update(i for i in below if i != NONE)
    return found, bare


def nodes_above(tape: Tape) -> set[int]:
    """Return the nodes between the model's outputs and the loss."""
    return outputs_of(tape)[1]


_TO_WEIGHT = frozenset({*VIEWS, "Mul", "WeightNormInterface", "Div"})
"""Between a product and its matrix: layout, spectral and weight normalisation."""


_OF_LOSSES = frozenset({"clamp", "log_softmax", "logsigmoid", "softplus"})
"""Functions that losses are made of: on an output they are the loss's, not the layer's."""


def applied_activation(tape: Tape, place: int, above: set[int]) -> str | None:
    """Return the activation function that the value at `place` went through.

    Its own where the node is one; else that of the nodes that read it, looking through layout,
    dropout and constant factors. `x * sigmoid(x)` is SiLU. None where several different ones read
    it (gates), or none.

    Args:
        tape: The graph.
        place: The layer's node.
        above: Nodes between the model's outputs and the loss.
    """
    own = activation_of(tape.nodes[place], tape.names[place])
    if own:
        return own
    found: set[str] = set()
    todo, steps = list(tape.outputs[place]), 0
    for reader in todo:
        steps += 1
        if steps > 32:
            break
        name = activation_of(tape.nodes[reader], tape.names[reader])
        if name == "sigmoid" and set(tape.outputs[reader]) & set(tape.outputs[place]):
            name = "silu"
        if name in _OF_LOSSES and reader in above:
            continue
        if name:
            found.add(name)
        elif tape.names[reader] in LAYOUT or (
            tape.names[reader] == "Mul" and NONE in tape.inputs[reader]
        ):
            todo.extend(tape.outputs[reader])
    return found.pop() if len(found) == 1 else None


def structure_of(tape: Tape) -> Structure:
    """Return what `tape` says of the model."""
    flow = _Flow(tape)
    flow.rise()
    outputs, above = outputs_of(tape)
    activation: dict[str, str | None] = {}
    for place, chain in tape.marks.items():
        applied = applied_activation(tape, place, above)
        for path in chain:
            activation[path] = activation.get(path) or applied
    layers = {
        path: LayerFlow(
            parents=tuple(flow.paths[i] for i in _bits(flow.parents[path] & ~flow.bit[path]))
            or (INPUT,),
            activation=activation.get(path),
            is_output=path in outputs,
            has_residual=path in flow.has_residual,
        )
        for path in flow.paths[1:]
    }
    opaque = tuple(sorted({n for n in tape.names if n.startswith(OPAQUE)}))
    return Structure(
        layers=layers,
        reached=frozenset(flow.reached),
        normalizations=flow.normalizations(),
        residual_adds=len(flow.skips),
        depth=max(flow.depth, default=0),
        series=flow.longest,
        opaque=opaque,
        nodes=len(tape.nodes),
        is_complete=tape.is_complete and not opaque,
    )


def trace_structure(
    loss: Any, layer_nodes: Mapping[str, Iterable[Any]], *, limit: int = NODE_LIMIT
) -> Structure | None:
    """Walk the graph behind `loss` and return what it says of the model.

    Args:
        loss: The tensor that `backward` starts from, before it runs.
        layer_nodes: For each tapped layer the `grad_fn` of its outputs, as its forward hook saw
            them, in the order in which the layers ended.
        limit: Nodes read at most.

    Returns:
        The structure, None where the loss carries no graph.
    """
    tape = record(loss, layer_nodes, limit=limit)
    return None if tape is None else structure_of(tape)


def is_foreign(loss: Any, parameters: AbstractSet[int]) -> bool:
    """Return whether the graph behind `loss` ends at parameters, and at none of these.

    One that shows no parameter at all, as behind a reentrant checkpoint, may be anybody's.
    """
    tape = record(loss, {})
    if tape is None:
        return False
    ends = [
        node.variable
        for node, name in zip(tape.nodes, tape.names, strict=True)
        if name == "AccumulateGrad" and isinstance(node.variable, torch.nn.Parameter)
    ]
    return bool(ends) and not any(id(end) in parameters for end in ends)


def reaches(loss: Any, parameters: AbstractSet[int]) -> bool:
    """Return whether the graph behind `loss` ends at one of these tensors, given by `id()`."""
    tape = record(loss, {})
    return tape is not None and any(
        id(node.variable) in parameters
        for node, name in zip(tape.nodes, tape.names, strict=True)
        if name == "AccumulateGrad"
    )
