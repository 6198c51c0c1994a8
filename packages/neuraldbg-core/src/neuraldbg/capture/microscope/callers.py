# SPDX-License-Identifier: MIT
"""The named tensors of the user's code that is running: names make a finding readable."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import FrameType

NEAR = 3
"""Callers whose code is read for an operation. Heuristic: a loop, its step, and its loss."""
FRAMES = 12
"""Callers that are searched. Heuristic: a loop, a trainer and what they call."""


def caller_tensors(*, with_attributes: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in the frames of the code outside torch and this package, innermost first.

    Args:
        with_attributes: Also those in objects and dicts that the frames name (of modules the
            buffers).
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    seen = 0
    while frame is not None and seen < FRAMES:
        if not _is_library(frame.f_globals.get("__name__", "")):
            seen += 1
            yield from _named(dict(frame.f_locals), with_attributes=with_attributes)
            if with_attributes:
                yield from _named(frame.f_globals, with_attributes=False)
        frame = frame.f_back


def caller_operation(names: Collection[str]) -> str:
    """Return which of `names` the user's code that is running calls, `encode: log`, or nothing.

    Functions that this code names are looked into, one level deep: a target is often made there.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    seen = 0
    while frame is not None and seen < NEAR:
        if not _is_library(frame.f_globals.get("__name__", "")):
            seen += 1
            found = set(_calls(frame, names))
            if found:
                return found.pop() if len(found) == 1 else ""
        frame = frame.f_back
    return ""


def _calls(frame: FrameType, names: Collection[str]) -> Iterator[str]:
    code = frame.f_code
    named = {**frame.f_globals, **frame.f_locals}
    called = [named.get(name) for name in (*code.co_names, *code.co_varnames, *code.co_freevars)]
    for one in (code, *(c.__code__ for c in called if isinstance(c, FunctionType))):
        yield from (f"{one.co_name}: {name}" for name in one.co_names if name in names)


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in {"neuraldbg", "torch"}


def _named(names: dict[str, object], *, with_attributes: bool) -> Iterator[tuple[str, Tensor]]:
    for name, value in list(names.items()):
        if isinstance(value, Tensor):
            yield name, value
        elif with_attributes:
            inside = value if isinstance(value, dict) else getattr(value, "__dict__", None)
            if isinstance(inside, dict) and not isinstance(value, type):
                if isinstance(value, nn.Module):
                    buffers = {k.rpartition(".")[2]: b for k, b in value.named_buffers()}
                    inside = {**inside, **buffers}
                for key, one in list(inside.items()):
                    if isinstance(one, Tensor):
                        yield str(key), one
