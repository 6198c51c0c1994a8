# SPDX-License-Identifier: MIT
"""Parameters that a module uses and does not register.

Kept in plain lists, tuples or dicts, in an object of another class, or as a bare tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from neuraldbg.capture.layers import named_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def hidden_parameters(models: Mapping[str, nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    """Trainable leaf tensors that attributes of the models' modules hold unregistered, by path."""
    for name, model in models.items():
        registered = {id(p) for p in model.parameters()}
        for path, module in named_modules(model):
            base = ".".join(part for part in (name, path) if part)
            for attribute, value in vars(module).items():
                if attribute.startswith("_") and attribute in _MODULE_FIELDS:
                    continue
                for key, item in _items(value):
                    full = ".".join(part for part in (base, attribute, key) if part)
                    for parameter in _parameters_of(item):
                        if id(parameter) not in registered and parameter.requires_grad:
                            yield full, parameter


_MODULE_FIELDS = frozenset(vars(nn.Module()))


_HOLDERS = (nn.Module, nn.Parameter, list, tuple, dict)


def _items(value: object) -> Iterator[tuple[str, object]]:
    """Return what an attribute holds by name: containers, and plain objects with theirs."""
    if isinstance(value, torch.Tensor):
        yield "", value
    if isinstance(value, list | tuple):
        yield from ((str(i), item) for i, item in enumerate(value))
    elif isinstance(value, dict):
        yield from ((str(key), item) for key, item in value.items())
    elif type(value).__module__ not in {"builtins", "torch"} and not isinstance(value, type):
        held = getattr(value, "__dict__", None) or {}
        yield from ((k, v) for k, v in held.items() if isinstance(v, _HOLDERS))


def _parameters_of(item: object) -> Iterator[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        if item.is_leaf and item.layout is torch.strided and not item.is_meta:
            yield item
    elif isinstance(item, nn.Module):
        yield from item.parameters()
    elif isinstance(item, list | tuple):
        for inner in item:
            yield from _parameters_of(inner)
    elif isinstance(item, dict):
        for inner in item.values():
            yield from _parameters_of(inner)
