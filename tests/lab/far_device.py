# SPDX-License-Identifier: MIT
"""An accelerator that is not there: tensors of device `far`, and a count of what waits for it.

Importing this registers the device with torch for the rest of the process. Every operation runs on
the CPU, behind a wrapper that the program cannot tell from a device tensor: `.item()`, `bool()`,
`.tolist()`, `.cpu()` and whatever else brings a value to the host comes through one place.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Self

import torch
from torch import library, nn
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("far")

DEVICE = torch.device("far", 0)
WAITS: Counter[str] = Counter()
"""What waited for the device so far."""

_aten = torch.ops.aten
_READS = {
    _aten._local_scalar_dense.default,
    _aten.equal.default,
    _aten.is_nonzero.default,
    _aten.nonzero.default,
    _aten.masked_select.default,
    _aten._unique2.default,
}


class Far(torch.Tensor):
    """A tensor of the device."""

    near: torch.Tensor

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> Self:
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            near.size(),
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            layout=near.layout,
            device=DEVICE,
        )
        self.near = near
        return self

    def __init__(self, near: torch.Tensor) -> None:
        """Everything is done in `__new__`."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        target = kwargs.get("device")
        is_to_host = target is not None and torch.device(target).type == "cpu"
        is_to_host |= func is _aten.copy_.default and not isinstance(args[0], Far)
        if is_to_host or func in _READS:
            WAITS[str(func)] += 1
        if target is not None:
            kwargs["device"] = torch.device("cpu")
        leaves = pytree.tree_leaves((args, kwargs))
        known = {id(leaf.near): leaf for leaf in leaves if isinstance(leaf, Far)}
        args, kwargs = pytree.tree_map(
            lambda leaf: leaf.near if isinstance(leaf, Far) else leaf, (args, kwargs)
        )
        result = func(*args, **kwargs)
        if is_to_host:
            return result

        def wrapped(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return known[id(leaf)] if id(leaf) in known else Far(leaf)

        return pytree.tree_map(wrapped, result)


def _empty(
    size: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> Far:
    return Far(torch.empty(size, dtype=dtype))


def _empty_strided(
    size: Any,
    stride: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> Far:
    return Far(torch.empty_strided(size, stride, dtype=dtype))


_factories = library.Library("aten", "IMPL")
_factories.impl("empty.memory_format", _empty, "PrivateUse1")
_factories.impl("empty_strided", _empty_strided, "PrivateUse1")


def far(tensor: torch.Tensor) -> Far:
    """Return a copy of a CPU tensor on the device."""
    return Far(tensor.detach().clone())


def move(model: nn.Module) -> nn.Module:
    """Give a model parameters and buffers on the device."""
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                module._parameters[name] = nn.Parameter(far(parameter))
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = far(buffer)
    return model


class FarParcel:
    """Arrives three steps later."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = [t.near.clone() if isinstance(t, Far) else t for t in tensors]
        self._left = 3

    def is_here(self) -> bool:
        self._left -= 1
        return self._left < 0

    def open(self) -> list[torch.Tensor]:
        return self._tensors


class FarCarrier:
    """What carries figures from the device without waiting for it."""

    def is_remote(self, tensor: torch.Tensor) -> bool:
        return isinstance(tensor, Far)

    def send(self, tensors: list[torch.Tensor]) -> FarParcel:
        return FarParcel(tensors)
