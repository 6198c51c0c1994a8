# SPDX-License-Identifier: MIT
"""Parameters that a module uses and does not register: kept in plain lists, tuples or dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from neuraldbg.capture.layers import named_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def hidden_parameters(models: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters of modules (or parameters) kept in plain lists, tuples or dicts of a module."""
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


def _items(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, list | tuple):
        yield from ((str(i), item) for i, item in enumerate(value))
    elif isinstance(value, dict):
        yield from ((str(key), item) for key, item in value.items())


def _parameters_of(item: object) -> Iterator[nn.Parameter]:
    if isinstance(item, nn.Parameter):
        yield item
    elif isinstance(item, nn.Module):
        yield from item.parameters()
    elif isinstance(item, list | tuple):
        for inner in item:
            yield from _parameters_of(inner)
