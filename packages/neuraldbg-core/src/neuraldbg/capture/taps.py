# SPDX-License-Identifier: MIT
"""Sampling hooks: each watched module writes into its own row of one preallocated board.

A hook writes sum, L2, minimum and maximum of the whole output (about three copies' worth of time)
and a small fixed sample. Nothing is read back to the host here; `statistics.Reducer` does that
once per step. One path serves eager and compiled code: the measuring is one library operator with
`out=` writes, so a compiled graph holds it without a break.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from time import thread_time
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from neuraldbg.capture import sample
from neuraldbg.capture.inert import NOTHING, Inert, copied
from neuraldbg.schema.run import LayerRole

if TYPE_CHECKING:
    from neuraldbg.capture.layers import WatchedLayer

SUM, NORM, MIN, MAX, SIZE, INPUT_NORM, INPUT_SIZE, COUNT = range(8)
"""Columns of the board's whole-tensor figures."""
_COLUMNS = 8

PRE_ACTIVATION = frozenset(
    {"gelu", "silu", "mish", "hardswish", "elu", "selu", "prelu", "leaky_relu"}
)
"""Activations whose output does not tell where their derivative is small: inputs are sampled."""

_library = torch.library.Library("neuraldbg", "DEF")  # type: ignore[no-untyped-call]
_library.define(  # type: ignore[no-untyped-call]
    "tap(Tensor t, Tensor(a!) row, Tensor(b!) sample, int unit_dim) -> ()",
    tags=(torch.Tag.pt2_compliant_tag,),
)

OPERATORS = _library
"""The operators of compiled code, for the hooks that define one of their own."""


def _measure(t: torch.Tensor, row: torch.Tensor, out: torch.Tensor, unit_dim: int) -> None:
    """Write sum, L2, min, max and element count of `t` into `row`, its sample into `out`."""
    size = t.numel()
    if size == 0:
        return
    dims = tuple(range(t.dim()))
    if t.dtype is torch.float32:
        torch.aminmax(t, out=(row[MIN], row[MAX]))
        torch.sum(t, dim=dims, out=row[SUM])
        torch.linalg.vector_norm(t, out=row[NORM])
    else:
        low, high = torch.aminmax(t)
        row[MIN].copy_(low)
        row[MAX].copy_(high)
        row[SUM].copy_(torch.sum(t, dim=dims, dtype=torch.float32))
        row[NORM].copy_(
            torch.linalg.vector_norm(
                t.float() if t.dtype is torch.float64 else t, dtype=torch.float32
            )
        )
    row[SIZE].fill_(size)
    if t.dim() == 0:
        return
    chosen = sample.plan(tuple(t.shape), tuple(t.stride()), unit_dim)
    view = out[: chosen.rows, : chosen.units]
    source = sample.take(t, chosen)
    view.copy_(source if source.dim() == 2 else source.reshape(chosen.rows, chosen.units))


def _measure_compiled(t: torch.Tensor, row: torch.Tensor, out: torch.Tensor, unit_dim: int) -> None:
    """Measure and count the call: compiled code cannot count in Python without re-tracing."""
    row[COUNT].add_(1)
    _measure(t, row, out, unit_dim)


_library.impl("tap", _measure_compiled, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]


@torch.library.register_fake("neuraldbg::tap")  # type: ignore[untyped-decorator]
def _(t: torch.Tensor, row: torch.Tensor, sample: torch.Tensor, unit_dim: int) -> None:  # noqa: ARG001
    return None


def first_tensor(value: Any) -> torch.Tensor | None:
    """Return the first floating-point tensor inside a module's output, or None."""
    if isinstance(value, torch.Tensor):
        return value if value.is_floating_point() else None
    if isinstance(value, tuple | list):
        for item in value:
            found = first_tensor(item)
            if found is not None:
                return found
        return None
    return next(iter(tensors_in(value)), None)


def tensors_in(value: Any, limit: int = 16) -> list[torch.Tensor]:
    """Return the floating-point tensors inside any nest of containers, dataclasses included."""
    found: list[torch.Tensor] = []
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            if leaf.is_floating_point():
                found.append(leaf)
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            fields = [getattr(leaf, f.name, None) for f in dataclasses.fields(leaf)]
            found += tensors_in(fields, limit - len(found))
        if len(found) >= limit:
            break
    return found


def in_backward() -> bool:
    """Whether autograd is running now: a forward seen then is a recomputation, not a forward."""
    return torch._C._current_graph_task_id() != -1  # noqa: SLF001 - no public signal exists


class Board:
    """Preallocated rows for every tapped layer of one device.

    Attributes:
        figures: `[L, 8]` float32 whole-tensor figures (SUM ... COUNT).
        samples: `[L, ROWS, UNITS]` float32; unused places keep NaN.
        calls: training forwards per layer since the last clear.
        checkpointed: layers that ran without gradients inside a reentrant checkpoint.
        transformed: calls inside a transform of `torch.func`, where nothing is measured.
        order: tapped layers in the order of their first execution.
        is_on: whether taps measure at all (one Python bool: at most two compiled graphs).
    """

    def __init__(self, layers: int, device: torch.device) -> None:
        self.figures = torch.full((layers, _COLUMNS), float("nan"), device=device)
        self.figures[:, COUNT] = 0
        self.is_compiled = False
        self.samples = torch.full((layers, sample.ROWS, sample.UNITS), float("nan"), device=device)
        self.extent = (1, 1)
        """Rows and units that the largest sample so far fills; the rest of `samples` is blank."""
        self.calls = [0] * layers
        self.touched = False
        self.stirred = False
        """Whether any tapped layer was called, trained or not; `Sight` takes it back."""
        self.transformed = 0
        self.is_on = True
        self.is_recording_nodes = True
        self.is_in_forward = False
        self.is_deaf = False
        """Whether forwards are none of the run's: reading the graph makes checkpoints recompute."""
        self.nodes: dict[int, list[Any]] = {}
        self.checkpointed: set[int] = set()
        self.problems: dict[int, str] = {}
        """What switched a tap off, by layer."""
        self.order: dict[int, None] = {}
        self.conv_shapes: set[tuple[int, ...]] = set()
        self.seconds = 0.0
        self.thread = threading.get_ident()
        self.on_activity: Any = None
        self.taps: list[Tap] = []
        self.is_awaiting = False

    def move(self, device: torch.device) -> None:
        """Follow the model to another device: taps write where their layers are."""
        self.figures, self.samples = self.figures.to(device), self.samples.to(device)
        for tap in self.taps:
            tap.row, tap.sample = self.figures[tap.index], self.samples[tap.index]

    def note_checkpointed(self, index: int) -> None:
        """Remember a layer whose first pass is that of a reentrant checkpoint (few steps only)."""
        if index not in self.checkpointed and _is_under_checkpoint():
            self.checkpointed.add(index)

    def clear(self) -> None:
        """Start a new step: forget counts (figures are overwritten by the next forward)."""
        self.calls = [0] * len(self.calls)
        if self.is_compiled:
            self.figures[:, COUNT] = 0
        self.touched = False
        self.nodes = {}
        self.seconds = 0.0


def _is_under_checkpoint() -> bool:
    """Whether `torch.utils.checkpoint` is among the callers."""
    frame = sys._getframe(1)  # noqa: SLF001 - reads file names only
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class Tap:
    """The forward hook of one layer. It is not copied, and pickles as one that does nothing."""

    def __init__(self, board: Board, index: int, layer: WatchedLayer) -> None:
        self.board = board
        self.index = index
        self.module = layer.module
        self.row = board.figures[index]
        self.sample = board.samples[index]
        self.role = layer.info.role
        self.is_inplace = bool(getattr(layer.module(), "inplace", False))
        self.takes_input = layer.info.activation in PRE_ACTIVATION
        self.layout: tuple[int, ...] | None = None
        self.unit_dim = -1
        self.extent = (0, 0)
        self.is_off = False

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        """Measure one output; always returns None, or it would replace the output."""
        board = self.board
        if torch.compiler.is_compiling():
            self._compiled(output)
            return
        if not torch.is_grad_enabled():
            board.stirred = True
            if board.is_recording_nodes and board.is_in_forward and not in_backward():
                board.note_checkpointed(self.index)
            return
        if self.is_off or board.is_deaf or self._is_foreign(module) or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
            return
        if board.is_awaiting:
            board.on_activity()
        board.touched = board.stirred = True
        board.calls[self.index] += 1
        if board.is_on or board.is_recording_nodes:
            start = thread_time()
            try:
                self._eager(args, output)
            except Exception as error:  # noqa: BLE001 - named once, off, and training goes on
                self.is_off = True
                board.problems[self.index] = repr(error)
            board.seconds += thread_time() - start

    def _is_foreign(self, module: nn.Module) -> bool:
        """Whether this is no forward of the watched run: another thread, a copy, a transform."""
        board = self.board
        if torch._C._functorch.peek_interpreter_stack() is not None:  # noqa: SLF001 - vmap, grad
            board.transformed += 1
            return True
        return (
            threading.get_ident() != board.thread
            or module is not self.module()
            or (in_backward() and self.index not in board.checkpointed)
        )

    def _eager(self, args: Any, output: Any) -> None:
        tensor = first_tensor(output)
        if tensor is None or not is_plain(tensor):
            return
        board = self.board
        if board.is_recording_nodes:
            board.order.setdefault(self.index)
        if board.is_recording_nodes and tensor.grad_fn is not None:
            board.nodes.setdefault(self.index, []).append(tensor.grad_fn)
        if not board.is_on:
            return
        source = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if source is not None and not is_plain(source):
            source = None
        t = _local(tensor.detach())
        if t.is_complex() or self._is_elsewhere(t):
            return
        unit_dim = self._unit_dim(t)
        self._renew(t, unit_dim)
        if self.takes_input and source is not None and source is not tensor:
            _measure(t, self.row, self.sample, unit_dim)
            before = _local(source.detach())
            if before.shape == t.shape and not self.is_inplace:
                chosen = sample.plan(tuple(before.shape), tuple(before.stride()), unit_dim)
                view = self.sample[: chosen.rows, : chosen.units]
                view.copy_(sample.take(before, chosen).reshape(chosen.rows, chosen.units))
            return
        _measure(t, self.row, self.sample, unit_dim)
        if source is not None and source.is_floating_point() and board.is_recording_nodes:
            before = _local(source.detach())
            self.row[INPUT_NORM].copy_(torch.linalg.vector_norm(before.float()))
            self.row[INPUT_SIZE].fill_(before.numel())

    def _is_elsewhere(self, t: torch.Tensor) -> bool:
        """Whether the layer computes on another device than the first parameter; off, if so."""
        here = self.row.device
        if t.device == here:
            return False
        self.is_off = True
        self.board.problems[self.index] = f"on {t.device}, while the first parameter is on {here}"
        return True

    def _renew(self, t: torch.Tensor, unit_dim: int) -> None:
        """Blank the sample where its extent changes, so that no row of an earlier step stays."""
        if t.dim() == 0 or t.numel() == 0:
            return
        chosen = sample.plan(tuple(t.shape), tuple(t.stride()), unit_dim)
        if (chosen.rows, chosen.units) != self.extent:
            self.extent = (chosen.rows, chosen.units)
            rows, units = self.board.extent
            self.board.extent = max(rows, chosen.rows), max(units, chosen.units)
            self.sample.fill_(float("nan"))

    def _unit_dim(self, t: torch.Tensor) -> int:
        layout = tuple(t.shape[1:])
        if layout == self.layout:
            return self.unit_dim
        if t.dim() <= 2:
            dim = -1
        elif self.role is LayerRole.CONVOLUTION:
            dim = 1
            self.board.conv_shapes.add(layout)
        elif self.role in {
            LayerRole.LINEAR,
            LayerRole.RECURRENT,
            LayerRole.ATTENTION,
            LayerRole.EMBEDDING,
        }:
            dim = -1
        else:
            dim = 1 if t.dim() >= 4 or layout in self.board.conv_shapes else -1
        self.layout, self.unit_dim = layout, dim
        return dim

    def _compiled(self, output: Any) -> None:
        tensor = first_tensor(output)
        self.board.touched = self.board.stirred = True
        self.board.is_compiled = True
        if tensor is not None and self.board.is_on and tensor.device == self.row.device:
            dim = 1 if self.role is LayerRole.CONVOLUTION or tensor.dim() >= 4 else -1
            torch.ops.neuraldbg.tap(tensor.detach(), self.row, self.sample, dim)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Inert:
        return copied(self.module(), memo)

    def __reduce__(self) -> tuple[Any, tuple[Any, str]]:
        return NOTHING


def is_plain(t: torch.Tensor) -> bool:
    """Whether a tensor is dense and has data at all."""
    return t.layout is torch.strided and not t.is_nested and not t.is_meta


def _local(t: torch.Tensor) -> torch.Tensor:
    return t.to_local() if hasattr(t, "to_local") else t
