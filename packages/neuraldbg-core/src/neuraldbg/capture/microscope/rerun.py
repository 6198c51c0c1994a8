# SPDX-License-Identifier: MIT
"""Running a recorded forward once more, with nothing left behind.

Random state, buffers, module attributes, gradient mode and autocast are put back; gradients are
asked for by `torch.autograd.grad`, so nothing accumulates. Global module hooks follow which module
is running; they go with the block.
"""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves, tree_map

from neuraldbg.capture.layers import named_modules
from neuraldbg.capture.microscope.region import next_number
from neuraldbg.capture.ranks import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(slots=True)
class Allowance:
    """Bytes that a step may still keep."""

    left: int


@dataclass(slots=True, weakref_slot=True, eq=False)
class Forward:
    """One outermost training forward of the current step, enough of it to run it again."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: tuple[int, ...]
    random_state: Tensor
    device_state: Tensor | None
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    start: int
    is_training: bool
    allowance: Allowance
    is_late: bool = False
    """Whether it was remembered after it had run: its random state and the gradients of its outputs
    are not known."""
    stop: int = -1
    """Sequence number after it; -1: it has not ended (it raised)."""
    gradients: dict[int, Tensor] | None = None
    """By position among the output's tensors: the gradient that reached it."""

    def keep_gradient(self, place: int, gradient: Tensor) -> None:
        """Keep the gradient that reached an output, within the step's size limit."""
        self.allowance.left -= gradient.nbytes
        if self.allowance.left < 0:
            return
        if self.gradients is None:
            self.gradients = {}
        self.gradients[place] = gradient.detach() if gradient.requires_grad else gradient

    @property
    def is_changed(self) -> bool:
        """Whether an input was changed in place since."""
        return self.versions != versions(self.args, self.kwargs)


def versions(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the version counters of the tensors among plain arguments."""
    values = (*args, *kwargs.values()) if kwargs else args
    return tuple([v._version for v in values if isinstance(v, Tensor)])  # noqa: SLF001


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors in an output: nested containers, ModelOutput, plain dataclasses."""
    found: list[Tensor] = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            for one in fields(leaf):
                found += tensors_of(getattr(leaf, one.name, None))
    return found


class Paths:
    """Module paths, as in `named_modules()`, prefixed by model name; and who is running."""

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        self.of: dict[int, str] = {}
        self.kinds: dict[str, str] = {}
        for name, model in models.items():
            for path, module in named_modules(model):
                full = ".".join(part for part in (name, path) if part)
                self.of.setdefault(id(module), full)
                self.kinds.setdefault(self.of[id(module)], kind_of(module))
        self._stack: list[str] = []
        self._numbers: list[int] = [0]
        self._owners: list[str] = [""]

    @property
    def current(self) -> str:
        """Path of the innermost running module."""
        return self._stack[-1] if self._stack else self._owners[0]

    def start(self, root: str) -> None:
        """Begin a re-run of the module at `root`."""
        self._stack.clear()
        self._numbers, self._owners = [next_number()], [root]

    def owner(self, number: int) -> str:
        """Return the module that made the graph node with this sequence number."""
        return self._owners[max(0, bisect_right(self._numbers, number) - 1)]

    def _mark(self) -> None:
        self._numbers.append(next_number())
        self._owners.append(self.current)

    def enter(self, module: nn.Module, _: Any) -> None:
        """Forward pre-hook."""
        path = self.of.get(id(module))
        if path is not None:
            self._stack.append(path)
            self._mark()

    def leave(self, module: nn.Module, _: Any, __: Any) -> None:
        """Forward hook, also when the forward raised."""
        path = self.of.get(id(module))
        if path is not None and self._stack:
            while self._stack and self._stack.pop() != path:
                pass
            self._mark()

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Follow modules by global hooks while the block runs."""
        pre = register_module_forward_pre_hook(self.enter)
        post = register_module_forward_hook(self.leave, always_call=True)
        try:
            yield
        finally:
            pre.remove()
            post.remove()


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    """Give every random generator its state back."""
    state, host = torch.get_rng_state(), random.getstate()
    devices = (
        torch.cuda.get_rng_state_all()
        if torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        else None
    )
    numpy = sys.modules.get("numpy")
    numbers = numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(state)
        random.setstate(host)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)
        if numpy is not None:
            numpy.random.set_state(numbers)


@contextlib.contextmanager
def modules_kept(root: nn.Module) -> Iterator[dict[int, Tensor]]:  # noqa: C901
    """Lend copies of the buffers, and put buffers and attributes of every module back.

    Yields:
        Storage addresses of parameters and of tensors kept as attributes: an in-place change of
        those must be undone by whoever sees it.
    """
    kept: list[tuple[nn.Module, dict[str, Any], dict[str, Any]]] = []
    guarded: dict[int, Tensor] = {}
    copies: dict[int, Tensor] = {}
    for module in list(root.modules()):
        attributes = dict(module.__dict__)
        contents = {}
        for name, value in attributes.items():
            if isinstance(value, (dict, list, set, deque)) and name not in {
                "_modules",
                "_parameters",
            }:
                contents[name] = value.copy()
            elif isinstance(value, Tensor):
                guarded[value.untyped_storage().data_ptr()] = value
        kept.append((module, attributes, contents))
        for name, buffer in module._buffers.items():  # noqa: SLF001
            if buffer is not None:
                copy = copies.setdefault(id(buffer), buffer.detach().clone())
                module._buffers[name] = copy  # noqa: SLF001
        for parameter in module._parameters.values():  # noqa: SLF001
            if parameter is not None and parameter.layout is torch.strided:
                guarded[parameter.untyped_storage().data_ptr()] = parameter
    try:
        yield guarded
    finally:
        for module, attributes, contents in kept:
            for name in [n for n in module.__dict__ if n not in attributes]:
                del module.__dict__[name]
            module.__dict__.update(attributes)
            for name, content in contents.items():
                _refill(attributes[name], content)


def _refill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, (list, deque)):
        container.extend(content)
    else:
        container.update(content)


@contextlib.contextmanager
def conditions(forward: Forward) -> Iterator[None]:
    """Set gradient mode, autocast and random state as they were at the forward."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(random_state_kept())
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autograd.set_detect_anomaly(mode=False))
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        for device, is_enabled, dtype in forward.autocast:
            stack.enter_context(
                torch.autocast(device, dtype=dtype, enabled=is_enabled, cache_enabled=False)
            )
        torch.set_rng_state(forward.random_state)
        if forward.device_state is not None:
            torch.cuda.set_rng_state(forward.device_state)
        yield


def fresh_inputs(
    forward: Forward,
) -> tuple[tuple[Any, ...], dict[str, Any], dict[int, tuple[str, str]], list[Tensor]]:
    """Copy the recorded inputs.

    Returns:
        Arguments, keyword arguments, storage address -> (`input`, name), and the copies.
    """
    names: dict[int, tuple[str, str]] = {}
    copies: list[Tensor] = []

    def copy(value: Any, name: str) -> Any:
        def one(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor) or leaf.layout is not torch.strided:
                return leaf
            twin = leaf.detach().clone()
            if leaf.requires_grad and (twin.is_floating_point() or twin.is_complex()):
                twin.requires_grad_()
            names[twin.untyped_storage().data_ptr()] = ("input", name)
            copies.append(twin)
            return twin

        return tree_map(one, value)

    args = tuple(copy(value, str(place)) for place, value in enumerate(forward.args))
    kwargs = {name: copy(value, name) for name, value in forward.kwargs.items()}
    return args, kwargs, names, copies
