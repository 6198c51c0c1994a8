# SPDX-License-Identifier: MIT
"""Hooks on the watched models themselves: where their outermost forwards begin and end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from neuraldbg.capture.taps import NOTHING, Inert, in_backward

if TYPE_CHECKING:
    from torch import nn

    from neuraldbg.capture.recorder import Recorder


class RootHook:
    """Tells the recorder of the forwards of one watched model; inert in copies and pickles."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self.recorder, self.name = recorder, name

    def is_deaf(self, module: nn.Module) -> bool:
        """Whether this call is none of a training program's forward on its own thread."""
        return (
            threading.get_ident() != self.recorder.thread
            or in_backward()
            or not self.is_mine(module)
            or torch._C._functorch.peek_interpreter_stack() is not None  # noqa: SLF001 - vmap, grad
        )

    def is_mine(self, module: nn.Module) -> bool:
        """Whether it sits on the module that it was made for."""
        return self.recorder.roots.get(self.name) is module

    def __deepcopy__(self, memo: dict[int, Any]) -> Inert:
        return Inert()

    def __reduce__(self) -> tuple[Any, tuple[Any, str]]:
        return NOTHING


class RootBegan(RootHook):
    """A forward pre-hook."""

    def __call__(self, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        """Pass the inputs on; changes nothing. A compiled wrapper gives no keyword arguments."""
        if not torch.compiler.is_compiling() and not self.is_deaf(module):
            self.recorder.forward_began(self.name, module, args, kwargs or {})


class RootEnded(RootHook):
    """A forward hook that is called after an exception too, then with output None."""

    def __call__(self, module: nn.Module, *rest: Any) -> None:
        """Pass the output, the last argument, on; changes nothing."""
        if not torch.compiler.is_compiling() and not self.is_deaf(module):
            self.recorder.forward_ended(self.name, module, rest[-1])
