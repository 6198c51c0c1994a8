# SPDX-License-Identifier: MIT
"""Signs of what a model means to do: mix samples on purpose, or look at the past only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from neuraldbg.capture.objective.losses import objective_of
from neuraldbg.capture.objective.reading import signed
from neuraldbg.capture.objective.tape import NONE, Tape, record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EQUAL = 0.95
"""Share of targets that are inputs moved by some positions. Heuristic: leaves room for padding."""
_STATISTICS = frozenset(
    (
        "mean",
        "std",
        "var",
        "std_mean",
        "var_mean",
        "norm",
        "sum",
        "amax",
        "amin",
        "softmax",
        "log_softmax",
    )
)
_PRODUCTS = frozenset(
    {"matmul", "mm", "spmm", "_sparse_mm", "bmm", "__matmul__", "einsum", "addmm", "_spmm_reduce"}
)
_GATHERS = frozenset({"__getitem__", "index_select"})
_SCATTERS = frozenset(
    (
        "index_add",
        "index_add_",
        "scatter_add",
        "scatter_add_",
        "scatter_reduce",
        "index_reduce",
        "cdist",
        "pdist",
        "topk",
        "sort",
        "argsort",
    )
)
_KEEPING = frozenset(
    (
        "View",
        "UnsafeView",
        "ReshapeAlias",
        "Transpose",
        "Permute",
        "Clone",
        "Squeeze",
        "Select",
        "LogSoftmax",
        "Slice",
        "ToCopy",
    )
)
"""Nodes between an output and the loss that keep the order of positions."""


class Watch(TorchFunctionMode):
    """Sees the functions that a forward calls, and whether they are about samples on purpose."""

    def __init__(self, samples: int, length: int) -> None:
        super().__init__()
        self.samples, self.length = samples, length
        self.mixes_samples = False
        """Statistics over the batch, a product with an N x N matrix, samples gathered or scattered
        by index."""
        self.is_causal = False
        """A causal attention call, or a triangular mask of the sequence's length."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Look at one call and make it."""
        options = dict(kwargs or {})
        try:
            self._look(getattr(func, "__name__", ""), args, options)
        except Exception:  # noqa: BLE001 - evidence is a help, never a failure
            self.mixes_samples = True
        return func(*args, **options)

    def _look(self, name: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        first = args[0] if args else None
        if name == "scaled_dot_product_attention":
            mask = options.get("attn_mask", args[3] if len(args) > 3 else None)
            self.is_causal |= bool(options.get("is_causal")) or self._is_triangle(mask)
        elif name in {"tril", "triu", "tril_", "triu_"}:
            self.is_causal |= self._is_square(first, self.length)
        elif name in {"masked_fill", "masked_fill_", "where"}:
            self.is_causal |= any(self._is_triangle(a) for a in args)
        elif name == "batch_norm":
            self.mixes_samples |= bool(options.get("training", False))
        elif name in _STATISTICS and isinstance(first, torch.Tensor) and first.ndim > 1:
            dims = options.get("dim", args[1] if len(args) > 1 else None)
            dims = (dims,) if isinstance(dims, int) else dims
            over = dims is None or any(d in {0, -first.ndim} for d in dims)
            self.mixes_samples |= over and first.shape[0] == self.samples
        elif name in _PRODUCTS:
            self.mixes_samples |= any(self._is_square(a, self.samples) for a in args)
        elif name in _SCATTERS and isinstance(first, torch.Tensor) and first.ndim > 1:
            dim = options.get("dim", args[1] if len(args) > 1 else None)
            self.mixes_samples |= dim == 0 and first.shape[0] == self.samples
        elif name in _GATHERS and isinstance(first, torch.Tensor) and first.ndim > 1:
            index = options.get("index", args[-1]) if name == "index_select" else args[1]
            dim = options.get("dim", args[1]) if name == "index_select" else 0
            self.mixes_samples |= dim == 0 and self._are_others(first, index)

    def _are_others(self, rows: torch.Tensor, index: Any) -> bool:
        """Return whether samples are picked by number, neighbours or pairs: not each its own."""
        index = index[0] if isinstance(index, tuple) and index else index
        if not isinstance(index, torch.Tensor) or index.dtype not in {torch.int64, torch.int32}:
            return False
        own = torch.arange(self.samples, device=index.device)
        is_own = index.numel() == self.samples and torch.equal(index.flatten().long(), own)
        return index.ndim > 0 and rows.shape[0] == self.samples and not is_own

    @staticmethod
    def _is_square(value: Any, size: int) -> bool:
        return isinstance(value, torch.Tensor) and tuple(value.shape) == (size, size)

    def _is_triangle(self, mask: Any) -> bool:
        """Return whether a mask hides what comes after, be it one or two positions too late."""
        if not isinstance(mask, torch.Tensor) or mask.ndim < 2:
            return False
        if mask.shape[-1] != mask.shape[-2] or mask.shape[-1] != self.length or self.length < 4:
            return False
        plane = mask.reshape(-1, self.length, self.length)[0]
        hidden = plane.bool() if plane.dtype == torch.bool else plane < -1e3
        for hides in (hidden, ~hidden):
            for late in (1, 2, 3):
                if torch.equal(hides, torch.ones_like(hides).triu(late)):
                    return True
        return False


def has_relations(model: nn.Module, leaves: list[Any], samples: int) -> bool:
    """Return whether the samples are parts of one thing: an N x N input, edges, a sparse matrix."""
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            continue
        if leaf.layout is not torch.strided or leaf.is_nested:
            return True
        if leaf.ndim > 1 and leaf.shape[0] == leaf.shape[1] == samples:
            return True
        if leaf.ndim == 2 and leaf.shape[0] == 2 != samples and not leaf.is_floating_point():
            return True
    for buffer in model.buffers():
        if buffer.layout is not torch.strided or tuple(buffer.shape[:2]) == (samples, samples):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Shift:
    """Targets that are one of the inputs, some positions later."""

    input: int
    """Place among the input leaves."""
    dim: int
    """Dimension of time in that input."""


def shifted_targets(
    loss: Any, leaves: list[Any], *, layer_nodes: Mapping[str, Any] | None = None
) -> Shift | None:
    """Return where the targets of `loss` are its own inputs moved back in time, None if nowhere.

    Args:
        loss: The loss, its graph alive.
        leaves: The model's inputs.
        layer_nodes: As for `record`.
    """
    tape = record(loss, layer_nodes or {})
    if tape is None:
        return None
    for term in objective_of(tape).terms:
        target = tape.saved(term.place, "target")
        if not isinstance(target, torch.Tensor) or not target.numel():
            continue
        below = tape.inputs[term.place]
        starts = _starts(tape, below[0] if below else NONE)
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor) and leaf.ndim > 1:
                for dim in range(1, leaf.ndim):
                    if _is_shifted(target.detach(), leaf.detach(), dim, starts):
                        return Shift(place, dim)
    return None


def _starts(tape: Tape, feed: int) -> set[int]:
    """Return where predictions start, by the slices between output and loss."""
    starts, place = {0}, feed
    for _ in range(12):
        if place == NONE:
            break
        if tape.names[place] == "Slice" and signed(tape.saved(place, "dim")) != 0:
            start = signed(tape.saved(place, "start"))
            if start:
                starts = {start}
        elif tape.names[place] not in _KEEPING:
            break
        below = tape.inputs[place]
        place = below[0] if below else NONE
    return starts


def _is_shifted(target: torch.Tensor, given: torch.Tensor, dim: int, starts: set[int]) -> bool:
    """Return whether target `k` along time is the input at `k + start + 1` or later."""
    length, samples = given.shape[dim], given.shape[0]
    if length < 4 or target.is_floating_point() != given.is_floating_point():
        return False
    rows = given.movedim(dim, 1).reshape(samples, length, -1)
    width = rows.shape[2]
    if target.numel() % (samples * width):
        return False
    count = target.numel() // (samples * width)
    if count < 3 or count > length:
        return False
    moved = target.movedim(dim, 1) if target.ndim == given.ndim and dim > 1 else target
    wanted = moved.reshape(samples, count, width)
    first = next(iter(starts)) % length
    for offset in range(1, min(length - 2, first + 9)):
        overlap = min(count, length - offset)
        if offset <= first or overlap < max(3, count // 2):
            continue
        same = wanted[:, :overlap] == rows[:, offset : offset + overlap]
        if float(same.float().mean()) >= EQUAL and not bool((rows == rows[:, :1]).all()):
            return True
    return False
