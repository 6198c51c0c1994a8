# SPDX-License-Identifier: MIT
"""One operator call as a dispatch mode sees it: what it reads, writes and would give in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from neuraldbg.capture.microscope.verdict import HALF, flags


@dataclass(frozen=True, slots=True)
class Call:
    """A remembered operation."""

    func: Any
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Tensor


def is_half_overflow(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> bool:
    """Whether a float16 result left its range and float32 would have held it."""
    if out.dtype is not torch.float16:
        return False
    wide = widened(func, args, kwargs)
    return wide is not None and not flags(wide)


def was_rounded_off(call: Call) -> bool:
    """Whether a call rounded something to 0 that float32 would have kept."""
    wide = widened(call.func, call.args, call.kwargs)
    if wide is None or wide.shape != call.out.shape:
        return False
    return bool(((call.out == 0) & (wide != 0)).any())


def widened(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return the operation's first result in float32, or None where it cannot be had."""

    def widen(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.dtype in HALF else value

    try:
        named = {k: torch.float32 if v in HALF else v for k, v in kwargs.items() if k != "out"}
        wide = func(*tree_map(widen, args), **tree_map(widen, named))
    except (RuntimeError, TypeError, NotImplementedError):
        return None
    first = wide[0] if isinstance(wide, (tuple, list)) else wide
    return first if isinstance(first, Tensor) else None


def is_training_norm(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a batch norm writes its running statistics and does not read them."""
    return "batch_norm" in name and (
        name == "_batch_norm_with_update" or any(a is True for a in args[4:8])
    )


def bare(name: str) -> str:
    """Return an operation's name without the underscore of its in-place form."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def is_view(func: Any) -> bool:
    """Whether an operation returns another look at the memory of an argument."""
    returns = func._schema.returns  # noqa: SLF001
    return (
        bool(returns) and returns[0].alias_info is not None and not returns[0].alias_info.is_write
    )


def in_order(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the arguments in their order, lists and tuples spread out."""
    flat: list[Any] = []
    for value in (*args, *kwargs.values()):
        flat.extend(value) if isinstance(value, (list, tuple)) else flat.append(value)
    return flat


def address_of(tensor: Tensor) -> int:
    """Return where the memory of a tensor begins; its `id()` where it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def covers(tensor: Tensor) -> bool:
    """Whether a tensor is all of its memory."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def written_by(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors that a call writes into."""
    found: list[Tensor] = []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = (
            kwargs.get(argument.name) if argument.kwarg_only or place >= len(args) else args[place]
        )
        found += [t for t in tree_leaves(value) if isinstance(t, Tensor)]
    return found
