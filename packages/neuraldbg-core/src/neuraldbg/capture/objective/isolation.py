# SPDX-License-Identifier: MIT
"""Run a model once more without its run noticing."""

from __future__ import annotations

import random
import sys
from collections import deque
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PLAIN = (bool, int, float, str, bytes, tuple, frozenset, type(None))
_CONTENTS: tuple[tuple[type, Callable[[Any], Any], Callable[[Any, Any], None]], ...] = (
    (list, list, lambda old, saved: old.__setitem__(slice(None), saved)),
    (dict, dict, lambda old, saved: (old.clear(), old.update(saved))[0]),
    (set, set, lambda old, saved: (old.clear(), old.update(saved))[0]),
    (deque, list, lambda old, saved: (old.clear(), old.extend(saved))[0]),
)
_OWN = frozenset({"_parameters", "_buffers", "_modules", "training"})


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Let `model` run in eval mode inside this context and leave it bit for bit as it was.

    Buffers and tensors kept as attributes are replaced by copies for the time and put back as the
    same objects, so no version counter moves and a pending backward pass is safe. Plain attributes,
    and the contents of lists, dicts, sets and deques that are attributes, are put back; so are the
    random states of Python, NumPy (if loaded), the CPU, the model's accelerators and generators
    kept as attributes. Hooks of other tools are silent for the time; those of `torch.nn.utils`
    (weight and spectral norm, pruning) run.

    Not covered: objects of other classes that the forward changes (a cache object, a logger), files
    and network. Callers must not pass such objects in.
    """
    modules = list(model.modules())
    with ExitStack() as undo:
        undo.callback(_random_states(model))
        copies: dict[int, torch.Tensor] = {}
        for module in modules:
            undo.callback(_state(module, copies))
            undo.callback(_hooks(module))
            undo.callback(module.__dict__.__setitem__, "training", module.training)
            module.__dict__["training"] = False
        undo.enter_context(torch.no_grad())
        undo.enter_context(_eager())
        yield


def _state(  # noqa: C901 - one branch per kind of attribute
    module: nn.Module, copies: dict[int, torch.Tensor]
) -> Callable[[], None]:
    """Swap a module's buffers and attributes for copies; return what puts them back."""
    buffers, attributes = dict(module._buffers), dict(module.__dict__)  # noqa: SLF001
    for name, buffer in buffers.items():
        if buffer is not None:
            module._buffers[name] = _copy(buffer, copies)  # noqa: SLF001
    contents: list[tuple[Any, Any, Callable[[Any, Any], None]]] = []
    for name, value in attributes.items():
        if name in _OWN or name.startswith(("_forward", "_backward", "_state_dict", "_load_state")):
            continue
        if isinstance(value, torch.Tensor):
            module.__dict__[name] = _copy(value, copies)
        elif isinstance(value, torch.Generator):
            contents.append((value, value.get_state(), lambda g, s: g.set_state(s)))
        elif not isinstance(value, _PLAIN):
            found = next((c for c in _CONTENTS if type(value) is c[0]), None)
            if found is not None:
                contents.append((value, found[1](value), found[2]))

    def put_back() -> None:
        module._buffers.clear()  # noqa: SLF001
        module._buffers.update(buffers)  # noqa: SLF001
        for value, saved, restore in contents:
            restore(value, saved)
        for name in [n for n in module.__dict__ if n not in attributes]:
            del module.__dict__[name]
        module.__dict__.update(attributes)

    return put_back


def _copy(tensor: torch.Tensor, copies: dict[int, torch.Tensor]) -> torch.Tensor:
    """Copy a tensor once, however many modules hold it."""
    if id(tensor) not in copies:
        copies[id(tensor)] = tensor.detach().clone()
    return copies[id(tensor)]


def _hooks(module: nn.Module) -> Callable[[], None]:
    """Silence a module's forward hooks; return what puts them back."""
    after, before = module._forward_hooks, module._forward_pre_hooks  # noqa: SLF001
    kept = type(before)()
    for key, hook in before.items():
        owner = getattr(hook, "__module__", None) or type(hook).__module__
        if owner.startswith("torch.nn.utils") or type(hook).__module__.startswith("torch.nn.utils"):
            kept[key] = hook
    module._forward_hooks, module._forward_pre_hooks = type(after)(), kept  # noqa: SLF001

    def put_back() -> None:
        module._forward_hooks, module._forward_pre_hooks = after, before  # noqa: SLF001

    return put_back


def _random_states(model: nn.Module) -> Callable[[], None]:
    """Remember every random state that a forward may use; return what puts them back."""
    undo: list[Callable[[], None]] = []
    python = random.getstate()
    undo.append(lambda: random.setstate(python))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state = numpy.random.get_state()
        undo.append(lambda: numpy.random.set_state(state))
    cpu = torch.get_rng_state()
    undo.append(lambda: torch.set_rng_state(cpu))
    devices = {p.device for p in model.parameters() if p.device.type not in {"cpu", "meta"}}
    for device in devices:
        backend = getattr(torch, device.type, None)
        if backend is not None and hasattr(backend, "get_rng_state"):
            undo.append(_device_state(backend, device))

    def put_back() -> None:
        for restore in undo:
            restore()

    return put_back


def _device_state(backend: Any, device: torch.device) -> Callable[[], None]:
    index = () if device.type == "mps" else (device,)
    state = backend.get_rng_state(*index)
    return lambda: backend.set_rng_state(state, *index)


@contextmanager
def _eager() -> Iterator[None]:
    """Run compiled modules eagerly and attention without its inference path."""
    with ExitStack() as undo:
        stance = getattr(torch.compiler, "set_stance", None)
        if stance is not None and "torch._dynamo" in sys.modules:
            undo.enter_context(stance("force_eager"))
        was = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        undo.callback(torch.backends.mha.set_fastpath_enabled, was)
        yield
