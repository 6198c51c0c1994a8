# SPDX-License-Identifier: MIT
"""Every module's outputs as autograd nodes, for the steps whose graph is audited."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.inert import NOTHING, Inert, copied
from neuraldbg.capture.taps import in_backward, tensors_in

if TYPE_CHECKING:
    from torch import nn


class Outputs:
    """The autograd nodes of every module's outputs, containers included, in the order of ending.

    Hooks are on the modules only for the steps that are audited.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, list[Any]] = {}
        self.changed: set[str] = set()
        """Containers whose own input was changed in place while they ran."""
        self.half: dict[str, None] = {}
        """Modules that gave float16 (autocast, or weights of that type), over the whole run."""
        self._entered: dict[str, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._handles: list[Any] = []

    def attach(self, modules: list[tuple[str, weakref.ref[nn.Module]]]) -> None:
        """Hook the given modules until `detach`; nothing where they are hooked already."""
        if self._handles:
            return
        for path, reference in modules:
            module = reference()
            if module is not None and not isinstance(module, torch.jit.ScriptModule):
                hook = _OutputHook(self, path, reference)
                self._handles.append(module.register_forward_hook(hook))
                if next(module.children(), None) is not None:
                    entry = _EntryHook(self, path, reference)
                    self._handles.append(module.register_forward_pre_hook(entry))

    def clear(self) -> None:
        """Forget the nodes of the last step."""
        self.nodes, self._entered = {}, {}
        self.changed = set()

    def enter(self, path: str, args: tuple[Any, ...]) -> None:
        """A container's forward begins: remember the version of its first tensor."""
        first = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if first is not None:
            self._entered[path] = (weakref.ref(first), first._version)  # noqa: SLF001 - no sync

    def leave(self, path: str) -> None:
        """It ended: was that tensor changed in place meanwhile."""
        reference, version = self._entered.pop(path, (None, 0))
        tensor = reference() if reference is not None else None
        if tensor is not None and tensor._version != version:  # noqa: SLF001
            self.changed.add(path)

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.clear()


class _OutputHook:
    def __init__(self, outputs: Outputs, path: str, module: weakref.ref[nn.Module]) -> None:
        self.outputs, self.path, self.module = outputs, path, module

    def __call__(self, _module: nn.Module, _args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not torch.is_grad_enabled() or in_backward():
            return
        self.outputs.leave(self.path)
        for tensor in tensors_in(output, limit=4):
            if tensor.dtype is torch.float16:
                self.outputs.half.setdefault(self.path)
            if tensor.grad_fn is not None:
                self.outputs.nodes.setdefault(self.path, []).append(tensor.grad_fn)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Inert:
        return copied(self.module(), memo)

    def __reduce__(self) -> tuple[Any, tuple[Any, str]]:
        return NOTHING


class _EntryHook(_OutputHook):
    def __call__(self, _module: nn.Module, args: Any) -> None:  # type: ignore[override]
        if not torch.compiler.is_compiling() and torch.is_grad_enabled() and not in_backward():
            self.outputs.enter(self.path, args)
