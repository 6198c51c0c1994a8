# SPDX-License-Identifier: MIT
"""Hooks that come off the modules while nobody listens: a module with any hook is called slowly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


class Rack:
    """Registered forward hooks that can be hung up and put back; order among them is kept.

    Only the entries of torch's own hook tables move: the handles stay valid, and what is hung up
    when its handle is removed stays away.
    """

    def __init__(self) -> None:
        self._hooks: list[tuple[Callable[[], nn.Module | None], int, Any, bool]] = []
        self._are_on = True

    def add(
        self,
        module: Callable[[], nn.Module | None],
        handle: Any,
        hook: Any,
        *,
        is_pre: bool = False,
    ) -> None:
        """Take a hook in; `module` is a weak reference."""
        self._hooks.append((module, handle.id, hook, is_pre))

    def put(self, *, on: bool) -> None:
        """Hang every hook up, or put it back."""
        if on is self._are_on:
            return
        self._are_on = on
        for reference, key, hook, is_pre in self._hooks:
            module = reference()
            if module is None:
                continue
            table: Any = module._forward_pre_hooks if is_pre else module._forward_hooks  # noqa: SLF001
            if not on:
                table.pop(key, None)
                continue
            table[key] = hook
            if is_pre:
                table.move_to_end(key, last=False)

    def clear(self) -> None:
        """Forget all hooks, as they are."""
        self._hooks = []
