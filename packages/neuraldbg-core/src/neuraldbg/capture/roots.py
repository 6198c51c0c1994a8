# SPDX-License-Identifier: MIT
"""Hooks on the watched models themselves: where their outermost forwards begin and end.

Where a model is compiled inside the session its root hooks are traced with it. What they would tell
then goes through one operator, which compiled code calls with the inputs on every forward.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import library
from torch.compiler import is_dynamo_compiling

from neuraldbg.capture.inert import NOTHING, Inert, copied
from neuraldbg.capture.taps import OPERATORS, in_backward

if TYPE_CHECKING:
    from torch import nn

    from neuraldbg.capture.recorder import Recorder

OPERATORS.define(  # type: ignore[no-untyped-call]
    "enter(Tensor[] inputs, Tensor(a!) mark, str names, int key) -> ()",
    tags=(torch.Tag.pt2_compliant_tag,),
)

_BEGAN: weakref.WeakValueDictionary[int, RootBegan] = weakref.WeakValueDictionary()
_KEYS = itertools.count()


class RootHook:
    """Tells the recorder of the forwards of one watched model; inert in copies and pickles."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self.recorder, self.name = recorder, name

    def is_deaf(self, module: nn.Module) -> bool:
        """Whether this call is none of a training program's forward on its own thread."""
        return (
            threading.get_ident() != self.recorder.thread
            or in_backward()
            or torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
            or not self.is_mine(module)
            or torch._C._functorch.peek_interpreter_stack() is not None  # noqa: SLF001 - vmap, grad
        )

    def subject(self) -> nn.Module | None:
        """Return the module that it was made for."""
        return self.recorder.roots.get(self.name)

    def is_mine(self, module: nn.Module) -> bool:
        """Whether it sits on the module that it was made for."""
        return self.subject() is module

    def __deepcopy__(self, memo: dict[Any, Any]) -> Inert:
        return copied(self.subject(), memo)

    def __reduce__(self) -> tuple[Any, tuple[Any, str]]:
        return NOTHING


class RootBegan(RootHook):
    """A forward pre-hook."""

    def __init__(self, recorder: Recorder, name: str, device: torch.device) -> None:
        super().__init__(recorder, name)
        self.quick = recorder.lean.quick
        self.key = next(_KEYS)
        self.mark = torch.zeros(1, device=device)
        """Declared as written by the operator, so that no compiler takes its call for dead code."""
        _BEGAN[self.key] = self

    def __call__(self, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        """Pass the inputs on; changes nothing. A compiled wrapper gives no keyword arguments."""
        if (
            not is_dynamo_compiling()
            and self.quick.is_on
            and self.quick.forward(module, args, kwargs)
        ):
            return
        if torch.compiler.is_compiling():
            self._compiled(args, kwargs or {})
            return
        here, is_training = threading.get_ident(), module.training and torch.is_grad_enabled()
        if here != self.recorder.thread and is_training and not in_backward():
            self.recorder.move_to(here)
        if not self.is_deaf(module):
            self.recorder.forward_began(self.name, module, args, kwargs or {})

    def _compiled(self, args: Any, kwargs: Any) -> None:
        if not torch.is_grad_enabled():
            return
        names, tensors = [], []
        for name, value in [*enumerate(args), *kwargs.items()]:
            if isinstance(value, torch.Tensor):
                names.append(str(name))
                tensors.append(value.detach())
        if tensors:
            torch.ops.neuraldbg.enter(tensors, self.mark, ",".join(names), self.key)

    def entered(self, inputs: list[torch.Tensor], names: str) -> None:
        """Compiled code has begun a forward with these inputs."""
        if threading.get_ident() == self.recorder.thread and not in_backward():
            named = dict(zip(names.split(","), inputs, strict=True))
            args = tuple(value for name, value in named.items() if name.isdigit())
            kwargs = {name: value for name, value in named.items() if not name.isdigit()}
            self.recorder.compiled_forward_began(self.name, args, kwargs)


class RootEnded(RootHook):
    """A forward hook that is called after an exception too, then with output None."""

    def __call__(self, module: nn.Module, *rest: Any) -> None:
        """Pass the output, the last argument, on; changes nothing."""
        if not torch.compiler.is_compiling() and not self.is_deaf(module):
            self.recorder.forward_ended(self.name, module, rest[-1])


def _enter(inputs: list[torch.Tensor], mark: torch.Tensor, names: str, key: int) -> None:  # noqa: ARG001
    began = _BEGAN.get(key)
    if began is not None:
        began.entered(inputs, names)


OPERATORS.impl("enter", _enter, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]


@library.register_fake("neuraldbg::enter")  # type: ignore[untyped-decorator]
def _(inputs: list[torch.Tensor], mark: torch.Tensor, names: str, key: int) -> None:  # noqa: ARG001
    return None
