# SPDX-License-Identifier: MIT
"""The few torch functions that must be seen from outside, replaced while a session is open.

One set of replacements serves every open session and goes when the last one closes, in any order
of closing. Each replacement calls the original with the same arguments and returns its result; a
listener that fails never reaches the user's code.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn.utils import clip_grad
from torch.optim import optimizer as optimizer_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch.utils.hooks import RemovableHandle

    from neuraldbg.capture.quick import Quick

_PRE: Any = optimizer_module._global_optimizer_pre_hooks  # noqa: SLF001
_POST: Any = optimizer_module._global_optimizer_post_hooks  # noqa: SLF001
"""Torch's tables of the hooks that every optimizer calls."""
_graph_task = torch._C._current_graph_task_id  # noqa: SLF001 - see `taps.in_backward`


class Listener(Protocol):
    """What a session hears. All calls come on the thread that trains."""

    thread: int
    ignored: frozenset[str]
    """Calls that need not be made now."""

    def adopt(self, thread: int, losses: Sequence[torch.Tensor]) -> None:
        """A backward began on a thread that is not the session's: is it that of its training."""

    def backward_began(self, losses: Sequence[torch.Tensor]) -> None:
        """`torch.autograd.backward` was called; the graph is still alive."""

    def backward_ended(self) -> None:
        """It returned normally; gradients are accumulated."""

    def clip_began(self, gradients: Sequence[torch.Tensor]) -> None:
        """A clipping call is about to compute the total norm of these gradients."""

    def clip_measured(self, total: Any, norms: Mapping[int, torch.Tensor]) -> None:
        """It computed that total norm, before clipping, from these L2 norms by `id(gradient)`."""

    def clip_limited(self, max_norm: float) -> None:
        """It is about to scale the gradients down to this norm."""

    def step_began(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to use its gradients (inside the closure where there is one)."""

    def step_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """It has moved the weights."""

    def scaler_called(self, what: str, scaler: Any, optimizer: Any) -> None:
        """A gradient scaler's `scale`, `unscale_`, `step`, `stepped` or `update` was called."""


@contextlib.contextmanager
def _overheard(norms: dict[int, torch.Tensor]) -> Iterator[None]:
    """Keep the norms that a clipping call computes anyway: reading every gradient twice is dear."""
    original = torch._foreach_norm  # noqa: SLF001 - the fused call that clipping uses

    def foreach_norm(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(tensors, *args, **kwargs)
        kind = args[0] if args else kwargs.get("ord", 2)
        if kind == 2:
            norms.update((id(t), n) for t, n in zip(tensors, result, strict=True))
        return result

    torch._foreach_norm = foreach_norm  # type: ignore[assignment] # noqa: SLF001
    try:
        yield
    finally:
        torch._foreach_norm = original  # noqa: SLF001


class Switchboard:
    """Owns the replacements and the open sessions."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._undo: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._quick: Quick | None = None
        self._is_stepping = False
        self._handles: tuple[RemovableHandle, RemovableHandle]

    def join(self, listener: Listener) -> None:
        """Let a session hear; the first one installs the replacements."""
        quick = self._quick
        if quick is not None:
            quick.spill()
        with self._lock:
            self._listeners = [*self._listeners, listener]
            if len(self._listeners) == 1:
                self._install()

    def leave(self, listener: Listener) -> None:
        """Stop hearing; the last one restores the originals."""
        with self._lock:
            before = len(self._listeners)
            self._listeners = [one for one in self._listeners if one is not listener]
            if before and not self._listeners:
                while self._undo:
                    self._undo.pop()()

    def lend(self, quick: Quick) -> bool:
        """Let the only session's `Quick` hear first; False where that cannot be now."""
        if len(self._listeners) != 1 or self._is_stepping:
            return False
        self._quick = quick
        self._hear_steps(quick.stepping, None)
        return True

    def take_back(self) -> None:
        """Tell the listeners alone again."""
        self._quick = None
        self._hear_steps(self.step_began, self._step_ended)

    def _hear_steps(self, began: Callable[..., Any], ended: Callable[..., Any] | None) -> None:
        """Put others in the place of the optimizers' hooks; None: a bare step does without."""
        _PRE[self._handles[0].id] = began
        if ended is None:
            _POST.pop(self._handles[1].id, None)
        else:
            _POST[self._handles[1].id] = ended

    def tell(self, call: str, *args: Any) -> None:
        """Call one method on every session of this thread."""
        here = threading.get_ident()
        for listener in self._listeners:
            if listener.thread != here and call == "backward_began":
                listener.adopt(here, args[0])
            if listener.thread == here and call not in listener.ignored:
                getattr(listener, call)(*args)

    def _install(self) -> None:
        self._replace(torch.autograd, "backward", self._backward)
        for name, make in (
            ("_get_total_norm", self._total_norm),
            ("_clip_grads_with_norm_", self._clip),
        ):
            if hasattr(clip_grad, name):
                self._replace(clip_grad, name, make)
        for name in ("scale", "unscale_", "step", "update"):
            self._replace(torch.amp.GradScaler, name, functools.partial(self._scaler, name))
        pre = optimizer_module.register_optimizer_step_pre_hook(self.step_began)
        post = optimizer_module.register_optimizer_step_post_hook(self._step_ended)
        self._handles = pre, post
        self._undo += [pre.remove, post.remove]

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        replacement = make(original)
        setattr(owner, name, replacement)

        def undo() -> None:
            if getattr(owner, name) is replacement:  # somebody else wrapped ours: leave theirs
                setattr(owner, name, original)

        self._undo.append(undo)

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if _graph_task() != -1 or not self._listeners:
                return original(tensors, *args, **kwargs)
            quick = self._quick
            if quick is not None and quick.backward(tensors):
                return original(tensors, *args, **kwargs)
            losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            self.tell("backward_began", losses)
            result = original(tensors, *args, **kwargs)
            self.tell("backward_ended")
            return result

        return backward

    def _total_norm(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def total_norm(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            gradients = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            self.tell("clip_began", gradients)
            norms: dict[int, torch.Tensor] = {}
            with _overheard(norms):
                result = original(gradients, *args, **kwargs)
            self.tell("clip_measured", result, norms)
            return result

        return total_norm

    def _clip(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def clip(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
            self.tell("clip_limited", float(max_norm))
            return original(parameters, max_norm, *args, **kwargs)

        return clip

    def _scaler(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            subject = args[0] if args else None
            self.tell("scaler_called", name, scaler, subject)
            result = original(scaler, *args, **kwargs)
            if name == "step":
                self.tell("scaler_called", "stepped", scaler, subject)
            return result

        return call

    def step_began(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Torch's hook before an optimizer's step; returns its arguments where they change."""
        closure = kwargs.get("closure") or next((a for a in args[1:] if callable(a)), None)
        if closure is None:
            self._tell_of_step(optimizer)
            return None

        @functools.wraps(closure)
        def watched() -> Any:
            result = closure()
            self._tell_of_step(optimizer)
            return result

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched}
        return tuple(watched if a is closure else a for a in args), kwargs

    def _tell_of_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Tell that a step begins; `Quick`, which does not hear it end, cannot start meanwhile."""
        self._is_stepping = True
        try:
            self.tell("step_began", optimizer)
        finally:
            self._is_stepping = False

    def _step_ended(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.tell("step_ended", optimizer)


SWITCHBOARD = Switchboard()
"""The one switchboard of the process: torch's names are process-wide, so this is too."""
