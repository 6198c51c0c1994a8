# SPDX-License-Identifier: MIT
"""What becomes of our hooks in copies of a watched model: nothing, or next to nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

NOTHING: tuple[Any, tuple[Any, str]] = (getattr, (contextlib.nullcontext(), "__exit__"))
"""What a hook pickles as: a callable of the standard library that takes anything, does nothing and
returns None, so that a saved model loads where NeuralDBG is not installed."""

_TABLES = {
    "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
}
"""Tables of hooks, each with the tables of their options."""


class Inert:
    """What a hook is in a copied model until the copy is whole: one that does nothing."""

    def __call__(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    def __reduce__(self) -> tuple[Any, tuple[Any, str]]:
        return NOTHING


class _Sweeper:
    """Takes the inert hooks off copied modules as `deepcopy` ends, and its memo goes."""

    def __init__(self) -> None:
        self.modules: list[nn.Module] = []

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            for module in self.modules:
                sweep(module)


def sweep(module: nn.Module) -> None:
    """Remove the inert hooks of one module, and options of those that were off as it was copied."""
    for name, options in _TABLES.items():
        table = getattr(module, name)
        for key in [key for key, hook in table.items() if isinstance(hook, Inert)]:
            del table[key]
        for chosen in (getattr(module, option) for option in options):
            for key in [key for key in chosen if key not in table]:
                del chosen[key]


def copied(module: nn.Module | None, memo: dict[Any, Any]) -> Inert:
    """Return what `deepcopy` makes of a hook of `module`; it is gone once the copy is done."""
    copy = memo.get(id(module))
    if copy is not None:
        memo.setdefault("neuraldbg", _Sweeper()).modules.append(copy)
    return Inert()
