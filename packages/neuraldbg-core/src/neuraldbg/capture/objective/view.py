# SPDX-License-Identifier: MIT
"""One loss under audit, as the checks see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neuraldbg.capture.objective.losses import Objective
from neuraldbg.capture.objective.tape import NONE, Tape, is_inside
from neuraldbg.schema.facts import Observation

SEARCH_LIMIT = 400
"""Nodes looked at for the layer that a value comes from."""


@dataclass(slots=True)
class View:
    """One loss under audit. Lives for one call: it holds the graph."""

    step: int
    tape: Tape
    objective: Objective
    above: set[int]
    """Nodes between the model's outputs and the loss."""
    batch_size: int
    """Samples of the step's forward, 0 where unknown."""
    modules: Mapping[str, Any] = field(default_factory=dict)
    loss: float | None = None
    """Value of the loss."""
    signature: str = ""
    """Tells the losses of one run apart, the same from step to step."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """Outputs with a graph that each module gave since the step began."""
    first_step: int = 0
    """Step at which this loss was first audited."""

    @property
    def terms(self) -> tuple[Any, ...]:
        """The summands of the loss."""
        return self.objective.terms

    def layer_of(self, place: int) -> str | None:
        """Return the layer that computed the value at `place`: the nearest one below it.

        An operation written out in a model's own `forward` belongs to the layer it reads: the
        model as a whole is the answer only where it has no layers below.
        """
        if place == NONE:
            return None
        seen, todo, root = {place}, [place], None
        for current in todo:
            path = self.tape.marks.get(current, (None,))[0]
            if path is not None and not self._is_root(path):
                return path
            root = path if root is None else root
            if len(seen) > SEARCH_LIMIT:
                break
            fresh = [i for i in self.tape.inputs[current] if i != NONE and i not in seen]
            seen.update(fresh)
            todo.extend(fresh)
        return root

    def _is_root(self, path: str) -> bool:
        if path == "":
            return True
        if "." in path or "" in self.modules:
            return False
        return any(is_inside(other, path) for chain in self.tape.marks.values() for other in chain)

    def observation(
        self,
        kind: str,
        layer: str | None = None,
        *,
        confidence: float,
        is_since_first: bool = False,
        figures: Mapping[str, float] | None = None,
        **words: str,
    ) -> Observation:
        """Return an observation of this step, or of the first one where it took several to see."""
        numbers = {name: float(value) for name, value in (figures or {}).items()}
        step = self.first_step if is_since_first else self.step
        return Observation(kind, step, layer, {"confidence": confidence, **numbers}, words)


def signature_of(tape: Tape, objective: Objective) -> str:
    """Return what stays the same of one loss from step to step: its terms, ranks, heads, layers."""
    parts: list[Any] = [len({path for chain in tape.marks.values() for path in chain})]
    for term in objective.terms:
        shape = tape.shape(term.feed) if term.feed != NONE else None
        is_classes = term.name in {"cross_entropy", "nll"} and shape and len(shape) > 1
        parts.append((term.name, len(shape or ()), shape[1] if shape and is_classes else 0))
    return repr(parts)
