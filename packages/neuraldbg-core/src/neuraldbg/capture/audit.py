# SPDX-License-Identifier: MIT
"""When the graph behind the loss is looked at, and what is learned from it.

Structure (data flow, activation functions, skips) on the first steps, the objective's checks on
the first eight steps, then with growing gaps, and after an alarm. Between audits nothing runs.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from neuraldbg.capture.inputs import batch_size
from neuraldbg.capture.objective import ObjectiveAudit, Structure, probe, trace_structure
from neuraldbg.capture.outputs import Outputs
from neuraldbg.capture.pretrained import pretrained
from neuraldbg.capture.ranks import alone
from neuraldbg.capture.recurrent import Memory
from neuraldbg.capture.taps import PRE_ACTIVATION, Board
from neuraldbg.schema.facts import Observation
from neuraldbg.schema.run import LayerInfo, LayerRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    import torch
    from torch import nn

    from neuraldbg.capture.layers import Survey
    from neuraldbg.capture.microscope import Microscope

STRUCTURE_STEPS = 2
"""Steps whose graph is read for the structure: the first may be a warm-up without a backward."""
DENSE_STEPS = 8
"""First steps whose objective is audited, each."""
SPARSE_EVERY = 64
"""Then once in so many steps, with gaps that double."""


class Audit:
    """Owns the graph walks of one run."""

    def __init__(
        self, models: Mapping[str, nn.Module], survey: Survey, board: Board, microscope: Microscope
    ) -> None:
        self.models, self.survey, self.board, self.microscope = models, survey, board, microscope
        self.objective = ObjectiveAudit()
        self.structure: Structure | None = None
        self.is_due_structure = False
        self._outputs = Outputs()
        self.memory = Memory(survey)
        leaves = [(layer.info.path, layer.module) for layer in survey.layers]
        self._modules = [*survey.containers, *leaves]
        self._next = 0
        self._gap = SPARSE_EVERY
        self._is_due = True
        self._is_probed = self._is_half_told = False
        self._pretrained: dict[str, float] = {}
        self._forward: tuple[str, nn.Module, tuple[Any, ...], dict[str, Any], Any] | None = None
        self._batch = 0

    @property
    def is_due(self) -> bool:
        """Whether the open step is audited."""
        return self._is_due

    @property
    def due_at(self) -> int:
        """Ordinal of the next step that is audited in any case."""
        return self._next

    def attach(self) -> None:
        """Look at the weights that the run begins with; hook outputs for the audited steps."""
        self._pretrained = pretrained(self.models)
        self._outputs.attach(self._modules)
        self.memory.attach()

    def detach(self) -> None:
        """Remove those hooks and drop what is held."""
        self._outputs.detach()
        self.memory.detach()
        self.objective.custom.close()
        self._forward = None

    def forward_began(
        self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """An outermost training forward starts."""
        self.board.is_in_forward = True
        if self._is_due:
            self._batch = batch_size(args, kwargs)
            if not self._is_probed:
                self._forward = (name, module, args, kwargs, None)

    def forward_ended(self, name: str, output: Any) -> None:
        """It ended."""
        self.board.is_in_forward = False
        if self._forward is not None and self._forward[0] == name:
            self._forward = (*self._forward[:4], output)

    def before_backward(self, label: int, ordinal: int, loss: torch.Tensor) -> list[Observation]:
        """Audit the loss while its graph is alive; see `switchboard.Listener.backward_began`."""
        if not self._is_due:
            return []
        layers = self.survey.layers
        nodes = {layers[index].info.path: fns for index, fns in self.board.nodes.items()}
        found: list[Observation] = []
        if ordinal < STRUCTURE_STEPS:
            structure = trace_structure(loss, nodes)
            if structure is not None and structure.layers:
                self.structure = _joined(self.structure, structure)
                self.is_due_structure = True
        self.memory.before_backward(self.board.nodes)
        modules = {path: module for path, ref in self._modules if (module := ref()) is not None}
        found += self._custom(label)
        with self._unheard():
            audited = self.objective.observe(label, loss, self._outputs.nodes, self._batch, modules)
        # The graph of `x = relu(x); x + f(x)` is that of the fault; the version counter of the
        # container's input tells them apart.
        changed = self._outputs.changed
        found += [o for o in audited if o.kind != "inplace_skip" or changed]
        found += self._probe(label, loss)
        return found

    def stepped(self, parameters: AbstractSet[int]) -> None:
        """An optimizer stepped these parameters (by `id()`)."""
        if self._is_due:
            self.objective.stepped(parameters)

    def settle(self, label: int) -> list[Observation]:
        """Say what is only known once the optimizers of the step have stepped."""
        if not self._is_due:
            return []
        found = [*self._recurrent(label), *self._half(label)]
        if self._pretrained:
            found.append(Observation("pretrained", label, figures=self._pretrained))
            self._pretrained = {}
        if self.is_due_structure:
            found += self._structure_observation(label)
        return found

    @contextlib.contextmanager
    def _unheard(self) -> Iterator[None]:
        """Run what is none of the user's, deaf to it: reading a graph may make forwards run too."""
        self.microscope.is_examining = self.board.is_deaf = True
        try:
            yield
        finally:
            self.microscope.is_examining = self.board.is_deaf = False

    def _custom(self, label: int) -> list[Observation]:
        """Test the custom functions that noted their arguments in this step's forward."""
        with self._unheard():
            return self.objective.custom.test(label)

    def _half(self, label: int) -> list[Observation]:
        """Say once that layers compute in float16, whose smallest gradient is 6e-8."""
        half = self._outputs.half
        if not half or self._is_half_told:
            return []
        self._is_half_told = True
        figures = {"modules": float(len(half))}
        return [Observation("float16_outputs", label, layer=next(iter(half)), figures=figures)]

    def _recurrent(self, label: int) -> list[Observation]:
        """Measure the recurrent layers, with our own hooks deaf to the extra passes."""
        if not self.memory:
            return []
        with self._unheard():
            return self.memory.observe(label)

    def _probe(self, label: int, loss: torch.Tensor) -> list[Observation]:
        """Once: does one sample, or the future, change what it should not."""
        if self._is_probed or self._forward is None:
            return []
        name, root, args, kwargs, output = self._forward
        self._forward = None
        self._is_probed = True
        module = alone(root)
        if output is None or module is None:
            return []
        paths = [layer.info.path for layer in self.survey.layers]
        with self._unheard():
            return probe(module, args, kwargs, output, loss, step=label, prefix=name, paths=paths)

    def next_step(self, ordinal: int, *, alarm: bool) -> None:
        """A step was closed: decide whether the next one is audited."""
        self._forward = None
        self._outputs.clear()
        if self._is_due and not self.board.is_compiled:
            self.objective.custom.arm()
        is_counting = ordinal <= SPARSE_EVERY and self.objective.is_counting
        if ordinal < DENSE_STEPS or is_counting:
            self._is_due = True
        elif alarm or ordinal >= self._next:
            self._is_due = True
            if ordinal >= self._next:
                self._next = ordinal + self._gap
                self._gap *= 2
        else:
            self._is_due = False
        if self._is_due:
            self._outputs.attach(self._modules)
            self.memory.attach()
        else:
            self._outputs.detach()
            self.memory.detach()
        self.board.is_recording_nodes = self._is_due

    def describe(self, layers: Sequence[LayerInfo]) -> tuple[LayerInfo, ...]:
        """Return the layers with data flow, activation function and order of execution."""
        self.is_due_structure = False
        flows = self.structure.layers if self.structure is not None else {}
        order = {index: place for place, index in enumerate(self.board.order)}
        described = []
        for index, info in enumerate(layers):
            update: dict[str, Any] = {"order": order.get(index, info.order)}
            flow = flows.get(info.path)
            if flow is not None:
                update |= {
                    "parents": flow.parents,
                    "is_output": flow.is_output,
                    "has_residual": flow.has_residual,
                }
                if info.activation is None and info.role is not LayerRole.ACTIVATION:
                    update["activation"] = flow.activation
                    update["is_flat_on_output"] = False
            if info.role is LayerRole.ACTIVATION:
                update["is_flat_on_output"] = info.activation not in PRE_ACTIVATION
            described.append(info.model_copy(update=update))
        return tuple(described)

    def _structure_observation(self, label: int) -> list[Observation]:
        """What the structure says as figures, for the trace."""
        s = self.structure
        if s is None:
            return []
        figures = {
            "depth": float(s.depth),
            "series": float(s.series),
            "residual_adds": float(s.residual_adds),
            "normalizations": float(len(s.normalizations)),
            "is_complete": float(s.is_complete),
        }
        return [Observation(kind="structure", step=label, figures=figures)]


def _joined(old: Structure | None, new: Structure) -> Structure:
    """Prefer the larger view where several losses each show a part."""
    if old is None or set(old.layers) <= set(new.layers):
        return new
    if set(new.layers) <= set(old.layers):
        return old
    import dataclasses

    return dataclasses.replace(new, layers={**old.layers, **new.layers})
