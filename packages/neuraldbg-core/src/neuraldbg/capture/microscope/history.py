# SPDX-License-Identifier: MIT
"""How an operand of the loss code was made, read from the graph while it is alive.

Only on a step whose loss is not finite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.microscope.nodes import RECOMPUTE, History, read, saved, stem

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

HOPS = 8
"""Operations looked back. Heuristic: a variance by hand is a cast, a square, a mean, an eps, a
root and a cast."""
NEVER_ZERO = frozenset({"Softmax", "Sigmoid", "Exp"})
"""Kinds whose exact result is never 0, so a 0 in float16 was rounded."""
FILLING = frozenset({"MaskedFill", "Where", "IndexPut", "MaskedScatter", "Scatter", "CopySlices"})
"""Kinds that can put an infinity where a mask says so."""


VIEWS = frozenset({
    "View", "UnsafeView", "ReshapeAlias", "Transpose", "T", "Permute", "Squeeze", "Unsqueeze",
    "Select", "Slice", "Split", "Unbind", "Expand", "ToCopy", "Clone", "Alias",
})  # fmt: skip
"""Kinds that change no value."""


def history(node: Any, place: int, models: Container[int]) -> History:
    """Look back from one operand of `node`; `models` holds the sequence numbers of the models."""
    makers: list[str] = []
    is_rounded = is_masked = is_half = is_from_model = is_output = False
    for child in _behind(node, place):
        key = stem(child.name())
        if not is_from_model and child._sequence_nr() in models:  # noqa: SLF001
            is_from_model, is_output = True, VIEWS.issuperset(makers)
        makers.append(key)
        is_open = any(below is None for below, _ in child.next_functions)
        is_masked = is_masked or key in FILLING or (key in {"Add", "Sub"} and is_open)
        if _is_half(child):
            is_half = True
            is_rounded = is_rounded or _rounds(child, key)
    return History(tuple(makers), is_rounded, is_masked, is_half, is_from_model, is_output)


def _behind(node: Any, place: int) -> Iterator[Any]:
    """Yield the nodes behind one operand, following first operands."""
    below = node.next_functions
    child = below[place][0] if len(below) > place else None
    for _ in range(HOPS):
        if child is None:
            return
        yield child
        child = next((one for one, _ in child.next_functions if one is not None), None)


def _is_half(node: Any) -> bool:
    try:
        return node._input_metadata[0].dtype is torch.float16  # noqa: SLF001
    except (AttributeError, IndexError, RuntimeError):  # private to torch
        return False


def _rounds(node: Any, key: str) -> bool:
    """Whether the result of a float16 operation has a 0 where the exact one has none."""
    if key in NEVER_ZERO:
        result = saved(node, "result")
        return isinstance(result, Tensor) and bool((result == 0).any())
    one = read(node)
    compute, arguments = RECOMPUTE.get(one.kind.operation), one.arguments
    if compute is None or any(a is None for a in arguments):
        return False
    wide = [a.float() if isinstance(a, Tensor) else a for a in arguments]
    try:
        with torch.no_grad():
            return bool(((compute(*arguments) == 0) & (compute(*wide) != 0)).any())
    except RuntimeError:
        return False
