# SPDX-License-Identifier: MIT
"""The logarithm of a scale that nothing holds: both of its parts in the loss push it one way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from neuraldbg.capture.objective.activations import LAYOUT
from neuraldbg.capture.objective.reading import multiple
from neuraldbg.capture.objective.tape import NONE, Tape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

EXPONENTIALS = 64
"""Exponentials looked at. Heuristic: a flow has one per coupling layer."""
SUMMANDS = 400
"""Sums opened on the way down from the loss."""
ABOVE = 400
"""Operations followed from an exponential to the loss."""
_MOVED = frozenset(
    ("View", "Reshape", "ReshapeAlias", "UnsafeView", "Squeeze", "Unsqueeze", "Sum", "Mean", "Neg")
)
"""Nodes that hold, or add up, every value that they read."""
_CARRIED = LAYOUT | {"Add", "Cat", "Stack", "Mean", "Sum"}
_EVEN = frozenset({"Pow", "Abs", "LinalgVectorNorm", "Norm"})
"""Nodes whose result grows with the size of what they read, whatever its sign."""


class _Value(NamedTuple):
    """One output of a node: a split has several."""

    place: int
    output: int


def _source(tape: Tape, value: _Value) -> tuple[_Value, float]:
    """Return what `value` is a plain multiple of, and the multiple."""
    by = 1.0
    for _ in range(8):
        name = tape.names[value.place]
        found = multiple(tape, value.place)
        if found is None and name in _MOVED:
            found = 0, -1.0 if name == "Neg" else 1.0
        if found is None or tape.inputs[value.place][found[0]] == NONE:
            break
        value, by = _read(tape, value.place, found[0]), by * found[1]
    return value, by


def _read(tape: Tape, place: int, argument: int) -> _Value:
    """Return the value that the node at `place` reads as its argument."""
    return _Value(tape.inputs[place][argument], tape.nodes[place].next_functions[argument][1])


class UnopposedLogScale:
    """Reports a log-scale whose own term and whose exponential both fall as it moves one way.

    A likelihood pays for what it shrinks: `z^2 / 2 - log|dz/dx|` of a flow, `e^(-s) * error + s`
    of a Gaussian with a learned variance. With the sign of one part turned, minimising drives the
    scale to 0 or to infinity and nothing else is learned. An exponential that meets a target
    (`(x * e^s - y)^2`) is held by it and passes.
    """

    def __init__(self) -> None:
        self._is_told = False

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at the terms of the loss that are plain multiples of something exponentiated."""
        if self._is_told or len(view.terms) < 2:
            return
        pushes = self._pushes(view.tape)
        exponentials = [i for i, name in enumerate(view.tape.names) if name == "Exp"]
        for place in exponentials[:EXPONENTIALS] if pushes else ():
            if view.tape.inputs[place][0] == NONE:
                continue  # behind the limit of what was read
            value, by = _source(view.tape, _read(view.tape, place, 0))
            push = pushes.get(value, 0.0)
            if push * by > 0 and self._raises_loss(view, place):
                self._is_told = True
                yield view.observation(
                    "unopposed_log_scale",
                    view.layer_of(place),
                    confidence=0.85,
                    figures={"factor": push * by},
                    cause="wrong_loss_sign",
                )
                return

    def _pushes(self, tape: Tape) -> Mapping[_Value, float]:
        """Return by which factor each value enters the loss on its own."""
        found: dict[_Value, float] = {}
        todo = [(_Value(0, 0), 1.0)]
        for start, sign in todo:
            value, by = _source(tape, start)
            name, below = tape.names[value.place], tape.inputs[value.place]
            if name in {"Add", "Sub"} and len(todo) < SUMMANDS:
                signs = (1.0, 1.0 if name == "Add" else -1.0)
                todo += [
                    (_read(tape, value.place, i), sign * by * signs[i])
                    for i in range(len(below))
                    if below[i] != NONE
                ]
            else:
                found[value] = found.get(value, 0.0) + sign * by
        return found

    def _raises_loss(self, view: View, start: int) -> bool:
        """Return whether the loss can only grow with the size of the exponential at `start`."""
        tape = view.tape
        ends = {t.place for t in view.terms if (t.factor or 0.0) > 0 and not t.is_weighted}
        todo, seen = [(start, True)], {(start, True)}
        for place, is_positive in todo:
            if is_positive and place in ends and place != start:
                return True
            if len(todo) > ABOVE:
                break
            for reader in tape.outputs[place]:
                step = self._above(tape, reader, place, is_positive=is_positive)
                if step is not None and (reader, step) not in seen:
                    seen.add((reader, step))
                    todo.append((reader, step))
        return False

    def _above(self, tape: Tape, reader: int, place: int, *, is_positive: bool) -> bool | None:
        """Return whether what `reader` makes of the value is never negative; None: it is lost."""
        name, below = tape.names[reader], tape.inputs[reader]
        if name in _EVEN:
            return True
        if name == "Mul":
            others = [i for i in below if i != place]
            return not others or (
                is_positive and all(i != NONE and self._is_even(tape, i) for i in others)
            )
        if name in _CARRIED and NONE not in below[: 2 if name == "Add" else 0]:
            return is_positive
        return None

    def _is_even(self, tape: Tape, place: int) -> bool:
        below = tape.through(place)
        return below != NONE and tape.names[below] in {*_EVEN, "Exp"}
