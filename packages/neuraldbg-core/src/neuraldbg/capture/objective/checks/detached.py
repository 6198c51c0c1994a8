# SPDX-License-Identifier: MIT
"""A term of the loss that reaches nothing that is trained by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuraldbg.capture.objective.tape import NONE, Tape
from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from neuraldbg.capture.objective.losses import Objective
    from neuraldbg.capture.objective.view import View

TIMES = 3
"""Losses in a row whose term trained nothing: an optimizer may step more rarely than another."""


def reach(tape: Tape, objective: Objective) -> list[frozenset[int]]:
    """Return for each term `id()` of the leaf tensors that it reaches."""
    bits = [0] * len(tape.nodes)
    for at, term in enumerate(objective.terms):
        bits[term.place] |= 1 << at
    found: list[set[int]] = [set() for _ in objective.terms]
    for place, below in enumerate(tape.inputs):
        if not bits[place]:
            continue
        if tape.names[place] == "AccumulateGrad":
            leaf = id(tape.nodes[place].variable)
            for at, leaves in enumerate(found):
                if bits[place] >> at & 1:
                    leaves.add(leaf)
        for i in below:
            if i != NONE:
                bits[i] |= bits[place]
    return [frozenset(leaves) for leaves in found]


@dataclass(slots=True)
class _Pending:
    """A loss whose optimizer step is not known yet. Ids only."""

    step: int
    signature: str
    names: tuple[str, ...]
    reached: list[frozenset[int]]
    layers: list[str | None]


class DetachedTerm:
    """Compares what each term reaches with what the optimizer then steps.

    A term that reaches trainable parameters, but none that is stepped, while another term of the
    same loss does, was cut from what it should train: a `detach` on the way, such as a generator's
    adversarial term that only reaches the discriminator. Where the steps are not told
    (`ObjectiveAudit.stepped`), a term that reaches one model alone, which has a loss of its own
    in the same run, beside a term that reaches another one alone.
    """

    def __init__(self) -> None:
        self._pending: list[_Pending] = []
        self._stepped: set[int] = set()
        self._is_told_of_steps = False
        self._idle: dict[str, list[int]] = {}
        self._told: set[str] = set()
        self._alone: set[frozenset[str]] = set()
        self._owners: dict[int, str] = {}

    def stepped(self, parameters: AbstractSet[int]) -> None:
        """Note `id()` of the parameters that an optimizer stepped."""
        self._is_told_of_steps = True
        self._stepped |= parameters

    def observe(self, view: View) -> Iterable[Observation]:
        """Judge the losses before the last optimizer step; note this one."""
        if self._stepped or any(pending.step != view.step for pending in self._pending):
            yield from self.settle()
        reached = reach(view.tape, view.objective)
        if len(view.terms) > 1:
            layers = [view.layer_of(t.place) for t in view.terms]
            names = tuple(t.name for t in view.terms)
            self._pending.append(_Pending(view.step, view.signature, names, reached, layers))
        yield from self._by_model(view, reached)

    def settle(self) -> Iterable[Observation]:
        """Judge the losses noted so far against the optimizers that stepped since."""
        pending, self._pending = self._pending, []
        stepped, self._stepped = self._stepped, set()
        for loss in pending if stepped else ():
            trains = [bool(leaves & stepped) for leaves in loss.reached]
            if not any(trains):
                continue
            for at, leaves in enumerate(loss.reached):
                key = f"{loss.signature}{at}"
                if trains[at] or not leaves:
                    self._idle[key] = []
                    continue
                steps = self._idle.setdefault(key, [])
                steps.append(loss.step)
                if len(steps) == TIMES:
                    yield self._observation(steps[0], loss.layers[at], loss.names[at], 0.9)

    def _by_model(self, view: View, reached: list[frozenset[int]]) -> Iterable[Observation]:
        if "" in view.modules or len(view.modules) < 2:
            return
        self._learn_owners(view)
        models = [
            frozenset(self._owners[i] for i in leaves if i in self._owners) for leaves in reached
        ]
        whole = frozenset().union(*models)
        if len(whole) == 1:
            self._alone.add(whole)
            return
        for at, own in enumerate(models):
            rest = frozenset().union(*(m for i, m in enumerate(models) if i != at))
            key = f"{own}{view.terms[at].name}"
            is_alone = len(own) == 1 and rest and not own & rest and own in self._alone
            if is_alone and key not in self._told and not self._is_told_of_steps:
                self._told.add(key)
                layer = view.layer_of(view.terms[at].place)
                yield self._observation(view.step, layer, view.terms[at].name, 0.8)

    def _learn_owners(self, view: View) -> None:
        if self._owners:
            return
        for path, module in view.modules.items():
            for parameter in module.parameters(recurse=False):
                self._owners[id(parameter)] = path.split(".", 1)[0]

    def _observation(
        self, step: int, layer: str | None, term: str, confidence: float
    ) -> Observation:
        return Observation(
            "detached_term",
            step,
            None,
            {"confidence": confidence},
            {"cause": "detached_loss_term", "term": term, "reads": layer or ""},
        )
