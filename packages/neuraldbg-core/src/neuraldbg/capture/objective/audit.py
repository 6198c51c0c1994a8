# SPDX-License-Identifier: MIT
"""`ObjectiveAudit`: what one run's losses are, what they receive and what they reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.custom import CustomFunctions
from neuraldbg.capture.objective.checks import Check, all_checks
from neuraldbg.capture.objective.checks.detached import DetachedTerm
from neuraldbg.capture.objective.checks.labels import LabelGap
from neuraldbg.capture.objective.graph import Structure, nodes_above, structure_of
from neuraldbg.capture.objective.losses import objective_of
from neuraldbg.capture.objective.tape import record
from neuraldbg.capture.objective.view import View, signature_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from neuraldbg.schema.facts import Observation

FIRST_STEPS = 8
"""Steps that are all audited: labels need a few batches, and a fault of the objective acts from
step 0."""
FIRST_GAP = 64
REPEATED = frozenset({"loss_function", "attention", "normalization"})
"""Kinds that describe and do not accuse: they are told again with new figures."""


def is_due(step: int) -> bool:
    """Return whether a step is audited: 0 to 7, then 64, 128, 256, ... (each gap twice the last).

    >>> [step for step in range(600) if is_due(step)]
    [0, 1, 2, 3, 4, 5, 6, 7, 64, 128, 256, 512]
    """
    return step < FIRST_STEPS or (step >= FIRST_GAP and step & (step - 1) == 0)


class ObjectiveAudit:
    """Reads the autograd graph behind each audited loss, before its backward pass.

    Consumes no random numbers, changes no graph, keeps numbers and names only, and never raises.
    A check that fails is off for the run, and `problems` names it.
    """

    def __init__(self, checks: Iterable[Check] | None = None) -> None:
        self._checks = list(all_checks() if checks is None else checks)
        self.structure: Structure | None = None
        """Of the first audited loss; those of later losses are merged by `structures`."""
        self.structures: dict[str, Structure] = {}
        """By signature of the loss, at most 8: a GAN has one per optimizer."""
        self.custom = CustomFunctions()
        self.problems: list[str] = []
        """What failed inside the audit, one sentence each."""
        self._first: dict[str, int] = {}
        self._said: set[tuple[str, str | None, str | None, str | None]] = set()

    def observe(
        self,
        step: int,
        loss: Any,
        layer_nodes: Mapping[str, Iterable[Any]],
        batch_size: int = 0,
        modules: Mapping[str, Any] | None = None,
    ) -> list[Observation]:
        """Audit one loss. Called before `backward`, once for each backward pass of the step.

        Args:
            step: The step's label.
            loss: The tensor that `backward` starts from.
            layer_nodes: For each tapped layer the `grad_fn` of its outputs, in the order in which
                the layers ended. Include the root modules.
            batch_size: Samples of the step's forward, 0 where unknown.
            modules: The watched modules by path.

        Returns:
            What was found that had not been said before.
        """
        try:
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                return self._observe(step, loss, layer_nodes, batch_size, modules or {})
        except Exception as error:  # noqa: BLE001 - an audit must never stop a run
            self._note(f"the audit of the loss failed at step {step}: {error!r}")
            return []

    @property
    def is_counting(self) -> bool:
        """Whether the steps to come should be audited too, because labels are being counted."""
        return any(isinstance(check, LabelGap) and check.is_pending for check in self._checks)

    def stepped(self, parameters: AbstractSet[int]) -> None:
        """Tell which parameters an optimizer stepped, by `id()`, after their audited loss."""
        for check in self._checks:
            if isinstance(check, DetachedTerm):
                check.stepped(parameters)

    def _observe(
        self,
        step: int,
        loss: Any,
        layer_nodes: Mapping[str, Iterable[Any]],
        batch_size: int,
        modules: Mapping[str, Any],
    ) -> list[Observation]:
        tape = record(loss, layer_nodes)
        if tape is None:
            return []
        value = float(loss.detach()) if loss.numel() == 1 else None
        objective = objective_of(tape)
        signature = signature_of(tape, objective)
        if len(self._first) < 64:
            self._first.setdefault(signature, step)
        view = View(
            step=step,
            tape=tape,
            objective=objective,
            above=nodes_above(tape),
            batch_size=batch_size,
            modules=modules,
            loss=value,
            signature=signature,
            calls={path: len(list(nodes)) for path, nodes in layer_nodes.items()},
            first_step=self._first.get(signature, step),
        )
        if signature not in self.structures and len(self.structures) < 8:
            structure = structure_of(tape)
            self.structures[signature] = structure
            self.structure = self.structure or structure
        self.custom.note(view)
        found: list[Observation] = []
        for check in list(self._checks):
            try:
                found.extend(o for o in check.observe(view) if self._is_new(o))
            except Exception as error:  # noqa: BLE001 - one check must not cost the others
                self._checks.remove(check)
                self._note(f"check {type(check).__name__!r} failed and is off: {error!r}")
        return found

    def _is_new(self, found: Observation) -> bool:
        """Return whether this was not said before; a loss is described again with its targets."""
        key = (found.kind, found.layer, found.words.get("loss"), found.words.get("term"))
        if found.kind in REPEATED:
            return True
        if key in self._said:
            return False
        self._said.add(key)
        return True

    def _note(self, problem: str) -> None:
        if len(self.problems) < 8:
            self.problems.append(problem)
