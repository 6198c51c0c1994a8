# SPDX-License-Identifier: MIT
"""An in-place activation on the tensor that a skip connection reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.objective.activations import activation_of
from neuraldbg.capture.objective.tape import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation


class InplaceSkip:
    """Reports an addition whose skip carries what an in-place activation of the branch left.

    The activation is the first operation of the branch: `x + f(relu_(x))` adds `relu(x)`, not `x`.
    The graph of `x = relu(x); x + f(x)` is the same, so the confidence is moderate.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at every addition whose sides meet in an in-place activation."""
        tape = view.tape
        for place, name in enumerate(tape.names):
            below = tape.inputs[place]
            if name != "Add" or len(below) != 2 or NONE in below:
                continue
            for around in below:
                layer = self._inplace_layer(view, around)
                if (
                    layer is None
                    or layer in self._told
                    or not self._starts_branch(view, around, place)
                ):
                    continue
                self._told.add(layer)
                yield view.observation(
                    "inplace_skip",
                    layer,
                    confidence=0.6,
                    cause="inplace_on_skip_path",
                    operation=tape.names[around].lower(),
                )

    def _inplace_layer(self, view: View, place: int) -> str | None:
        tape = view.tape
        if activation_of(tape.nodes[place], tape.names[place]) is None:
            return None
        for path in tape.marks.get(place, ()):
            if getattr(view.modules.get(path), "inplace", False):
                source = tape.inputs[place][0]
                return path if self._is_block_input(view, path, source) else None
        return None

    def _is_block_input(self, view: View, path: str, source: int) -> bool:
        """Return whether the activation reads what entered its block, not the block's own layer."""
        if source == NONE:
            return False
        block = path.rpartition(".")[0]
        while block and type(view.modules.get(block)).__name__ in {"Sequential", "ModuleList"}:
            block = block.rpartition(".")[0]
        producers = view.tape.marks.get(source, ())
        return bool(producers) and not any(p.startswith(block + ".") for p in producers if block)

    def _starts_branch(self, view: View, around: int, place: int) -> bool:
        """Return whether another reader of the skip leads, through the branch, to the addition."""
        todo = [r for r in view.tape.outputs[around] if r != place]
        seen = set(todo)
        for node in todo:
            if place in view.tape.outputs[node]:
                return True
            if len(seen) > 200:
                return False
            fresh = [r for r in view.tape.outputs[node] if r not in seen and r > place]
            seen.update(fresh)
            todo.extend(fresh)
        return False
