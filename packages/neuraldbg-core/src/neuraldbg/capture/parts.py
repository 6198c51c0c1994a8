# SPDX-License-Identifier: MIT
"""Models that are never called themselves: their parts are, and data enters there.

A trainer that calls `model.training_step(batch)`, or a loop that calls `model.encode(x)`, passes
the hooks of the model itself. Until the model is called for the first time, the outermost modules
inside it are listened to instead; from then on they are not.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from neuraldbg.capture.layers import named_modules, unwrap
from neuraldbg.capture.roots import RootHook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.capture.recorder import Recorder
    from neuraldbg.capture.segment import Segment

LIMIT = 64
"""Parts of one model that are listened to. Heuristic: one with more has a forward."""


class Parts:
    """The hooks on the parts, by model, and which part is running."""

    def __init__(self) -> None:
        self._handles: dict[str, list[Any]] = {}
        self._running: weakref.ref[nn.Module] | None = None
        self._calls: dict[int, int] = {}
        self._made: set[int] = set()

    def attach(self, recorder: Recorder) -> None:
        """Listen to the parts of every watched model; none where anything is compiled."""
        if recorder.board.is_compiled:
            return
        for name, root in recorder.roots.items():
            handles = self._handles[name] = []
            for path, part in list(_outermost(root))[:LIMIT]:
                full = ".".join(each for each in (name, path) if each)
                began, ended = PartBegan(recorder, full, part), PartEnded(recorder, full, part)
                handles += [
                    part.register_forward_pre_hook(began, prepend=True, with_kwargs=True),
                    part.register_forward_hook(ended, with_kwargs=True, always_call=True),
                ]

    @property
    def is_on(self) -> bool:
        """Whether parts are listened to, because their model has not been called itself."""
        return any(self._handles.values())

    def detach(self) -> None:
        """Remove all hooks."""
        for name in list(self._handles):
            self.drop(name)

    def drop(self, name: str) -> None:
        """The model `name` is called itself: its parts need not be listened to."""
        for handle in self._handles.pop(name, ()):
            handle.remove()

    def begin(self, part: nn.Module, segment: Segment) -> bool:
        """Count a call; return whether it is an outermost one."""
        if self._running is not None and self._running() is not None:
            return False
        self._running = weakref.ref(part)
        calls = self._calls[id(part)] = self._calls.get(id(part), 0) + 1
        # One forward of the whole calls each part once: the part called most often tells.
        segment.forwards = max(segment.forwards, calls)
        return True

    def end_step(self) -> None:
        """Start counting anew."""
        self._calls, self._made = {}, set()

    def end(self, part: nn.Module, output: Any) -> bool:
        """Note what an outermost call returned; return whether it was one."""
        if self._running is None or self._running() is not part:
            return False
        self._running = None
        outputs = output if isinstance(output, tuple | list) else (output,)
        self._made |= {t.data_ptr() for t in outputs if _has_data(t)}
        return True

    def is_data(self, value: Any) -> bool:
        """Whether an argument may come from outside: not what another part of this step made."""
        if not isinstance(value, torch.Tensor):
            return True
        return value.grad_fn is None and not (_has_data(value) and value.data_ptr() in self._made)


def _has_data(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_meta


def _outermost(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Return the modules that a method of the model may call: lists and dicts are looked into."""
    inner = unwrap(root)
    if inner is not root:
        yield "", inner
        return
    paths = {id(module): path for path, module in named_modules(root)}
    waiting = list(root.children())
    while waiting:
        module = waiting.pop(0)
        if isinstance(module, nn.ModuleList | nn.ModuleDict):
            waiting = [*module.children(), *waiting]
        elif id(module) in paths:
            yield paths[id(module)], module


class PartHook(RootHook):
    """Tells the recorder of the forwards of one part; inert in copies and pickles."""

    def __init__(self, recorder: Recorder, name: str, part: nn.Module) -> None:
        super().__init__(recorder, name)
        self.part = weakref.ref(part)

    def subject(self) -> nn.Module | None:
        """Return the module that it was made for."""
        return self.part()

    def is_training(self, module: nn.Module) -> bool:
        """Whether this call is one of a training program's own, with gradients."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return False
        return not self.is_deaf(module)


class PartBegan(PartHook):
    """A forward pre-hook."""

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Pass the inputs on; changes nothing."""
        if self.is_training(module):
            self.recorder.part_began(self.name, module, args, kwargs)


class PartEnded(PartHook):
    """A forward hook that is called after an exception too, then with output None."""

    def __call__(self, module: nn.Module, *rest: Any) -> None:
        """Pass the output, the last argument, on; changes nothing."""
        if self.is_training(module):
            self.recorder.part_ended(module, rest[-1])
