# SPDX-License-Identifier: MIT
"""The module tree as layers and parameters: what gets a row in the facts' arrays."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from neuraldbg.capture.ranks import kind_of, part_of, shard_of
from neuraldbg.schema.run import LayerInfo, LayerRole, ParameterInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROLES: tuple[tuple[tuple[type[nn.Module], ...], LayerRole], ...] = (
    ((nn.Linear, nn.Bilinear), LayerRole.LINEAR),
    ((nn.modules.conv._ConvNd,), LayerRole.CONVOLUTION),  # noqa: SLF001 - the only common base
    ((nn.RNNBase, nn.RNNCellBase), LayerRole.RECURRENT),
    ((nn.MultiheadAttention,), LayerRole.ATTENTION),
    (
        (
            nn.modules.batchnorm._NormBase,  # noqa: SLF001 - base of batch and instance norms
            nn.LayerNorm,
            nn.GroupNorm,
            nn.LocalResponseNorm,
        ),
        LayerRole.NORMALIZATION,
    ),
    ((nn.Embedding, nn.EmbeddingBag), LayerRole.EMBEDDING),
    ((nn.modules.dropout._DropoutNd,), LayerRole.DROPOUT),  # noqa: SLF001
)
if hasattr(nn, "RMSNorm"):
    _ROLES = (*_ROLES, ((nn.RMSNorm,), LayerRole.NORMALIZATION))

ACTIVATIONS: Mapping[str, str] = {
    "ReLU": "relu",
    "ReLU6": "relu6",
    "LeakyReLU": "leaky_relu",
    "PReLU": "prelu",
    "RReLU": "leaky_relu",
    "ELU": "elu",
    "SELU": "selu",
    "CELU": "celu",
    "GELU": "gelu",
    "SiLU": "silu",
    "Mish": "mish",
    "Sigmoid": "sigmoid",
    "LogSigmoid": "logsigmoid",
    "Tanh": "tanh",
    "Softsign": "softsign",
    "Softplus": "softplus",
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "Hardtanh": "hardtanh",
    "Hardsigmoid": "hardsigmoid",
    "Hardswish": "hardswish",
    "Threshold": "relu",
    "Softmin": "softmax",
    "Softmax2d": "softmax",
}
"""Activation modules by class name, and the name that the facts use for the function."""

_INNER = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})
"""Under which name a wrapper of compile, checkpointing and FSDP holds what it wraps."""

_UNTAPPED = (nn.Identity, nn.Flatten, nn.Unflatten, nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(slots=True)
class WatchedLayer:
    """One row of the layer arrays."""

    info: LayerInfo
    module: weakref.ref[nn.Module]


@dataclass(slots=True)
class Survey:
    """Every module and parameter of the watched models, in the order of `named_modules()`."""

    layers: list[WatchedLayer]
    parameters: list[ParameterInfo]
    tensors: list[torch.nn.Parameter]
    containers: list[tuple[str, weakref.ref[nn.Module]]]
    """Modules that are not tapped (they only route), with their paths."""
    lazy: list[int]
    """Rows of parameters that get their shape in the first forward of a lazy module."""

    @property
    def named(self) -> dict[str, torch.nn.Parameter]:
        """Parameters by name."""
        return {i.name: t for i, t in zip(self.parameters, self.tensors, strict=True)}

    def renew(self) -> list[int]:
        """Take what the modules hold in place of their parameters; return the rows that changed."""
        modules = {path: ref() for path, ref in self.containers}
        modules |= {layer.info.path: layer.module() for layer in self.layers}
        known, rows = {id(t) for t in self.tensors}, []
        for row, info in enumerate(self.parameters):
            now = _held(modules.get(info.layer), info)
            if now is None or id(now) in known or is_shapeless(now):
                continue
            known.add(id(now))
            self.tensors[row] = now
            rows.append(row)
        return rows

    def complete(self) -> bool:
        """Describe lazy modules that have their shapes by now; return whether there were any."""
        ready = [row for row in self.lazy if not is_shapeless(self.tensors[row])]
        for row in ready:
            self.parameters[row] = self.parameters[row].model_copy(
                update=_measures(self.tensors[row])
            )
        for layer in self.layers if ready else ():
            module, info = layer.module(), layer.info
            if info.kind.startswith("Lazy") and module is not None:
                layer.info = _layer(info.path, info.model, module)
        self.lazy = [row for row in self.lazy if row not in ready]
        return bool(ready)


def unwrap(model: nn.Module) -> nn.Module:
    """Return the user's own module behind compile, DataParallel and DDP wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(
            model, (nn.DataParallel, nn.parallel.DistributedDataParallel)
        ):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def role_of(module: nn.Module) -> LayerRole:
    """Classify a module by what it does, not by its name."""
    if kind_of(module) in ACTIVATIONS:
        return LayerRole.ACTIVATION
    for kinds, role in _ROLES:
        if isinstance(module, kinds):
            return role
    if type(module).__module__.startswith("torch.nn.modules.pooling"):
        return LayerRole.POOLING
    if "norm" in type(module).__name__.lower() and next(module.children(), None) is None:
        return LayerRole.NORMALIZATION
    return LayerRole.OTHER if next(module.children(), None) is None else LayerRole.CONTAINER


def survey(models: Mapping[str, nn.Module], frozen: tuple[str, ...] = ()) -> Survey:
    """Enumerate layers and parameters.

    A module is tapped when it is a leaf, owns parameters of its own, or computes an activation;
    pure containers are not: their output is their last child's.
    """
    result = Survey([], [], [], [], [])
    seen: dict[int, int] = {}
    visited: set[int] = set()
    for name, model in models.items():
        prefix = f"{name}." if name else ""
        for path, module in named_modules(model):
            full = f"{prefix}{path}".rstrip(".") if path else name
            if id(module) in visited:
                continue
            visited.add(id(module))
            if is_tapped(module):
                info = _layer(full, name, module)
                result.layers.append(WatchedLayer(info, weakref.ref(module)))
            else:
                result.containers.append((full, weakref.ref(module)))
            _add_parameters(result, seen, full, module, frozen)
    return result


def is_tapped(module: nn.Module) -> bool:
    """Whether a module gets a row: a leaf or an owner of parameters, and not mere routing."""
    if isinstance(module, (*_UNTAPPED, torch.jit.ScriptModule)):
        return False
    is_leaf = next(module.children(), None) is None
    return is_leaf or any(True for _ in module.parameters(recurse=False))


def plain_path(path: str) -> str:
    """Return a path of `named_modules()` without the names that wrappers give what they wrap."""
    return ".".join(part for part in path.split(".") if part not in _INNER)


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """`model.named_modules()`, by the paths that the modules had before anything was wrapped.

    Wrappers inside the model (compiled or checkpointed blocks, replicated or sharded parts) go by
    the path of what they wrap; the machinery of parametrizations is left out: its owner keeps the
    name.
    """
    paths = {"": ""}
    replicas = set()
    for path, module in model.named_modules():
        parent, _, own = path.rpartition(".")
        if path:
            is_wrapped = own in _INNER or (own == "module" and parent in replicas)
            paths[path] = paths[parent] if is_wrapped else f"{paths[parent]}.{own}".lstrip(".")
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            replicas.add(path)
        if "parametrizations" not in path.split("."):
            yield paths[path], module


def _layer(path: str, model: str, module: nn.Module) -> LayerInfo:
    kind = kind_of(module)
    weight = module._parameters.get("weight")  # noqa: SLF001 - reading a parametrized weight computes
    is_there = isinstance(weight, torch.Tensor) and not is_shapeless(weight)
    shape = tuple(weight.shape) if weight is not None and is_there else ()
    fan_in = 1
    for size in shape[1:]:
        fan_in *= int(size)
    return LayerInfo(
        path=path,
        kind=kind,
        role=role_of(module),
        model=model,
        activation=ACTIVATIONS.get(kind),
        fan_in=fan_in if len(shape) > 1 else 0,
        units=int(shape[0]) if shape else 0,
    )


def _add_parameters(
    result: Survey, seen: dict[int, int], path: str, module: nn.Module, frozen: tuple[str, ...]
) -> None:
    owned = list(module.named_parameters(recurse=False))
    parametrizations = getattr(module, "parametrizations", None)
    if isinstance(parametrizations, nn.Module):
        owned += [
            (f"parametrizations.{name}", tensor)
            for name, tensor in parametrizations.named_parameters()
        ]
    for name, tensor in owned:
        full = f"{path}.{name}" if path else name
        row = seen.get(id(tensor))
        if row is not None:
            tied = result.parameters[row]
            result.parameters[row] = tied.model_copy(
                update={"shared_with": (*tied.shared_with, full)}
            )
            continue
        seen[id(tensor)] = len(result.parameters)
        is_frozen = any(full == f or full.startswith(f"{f}.") for f in frozen)
        result.parameters.append(
            ParameterInfo(
                name=full,
                layer=path,
                is_trainable=tensor.requires_grad,
                is_declared_frozen=is_frozen,
                **_measures(tensor),
            )
        )
        if is_shapeless(tensor):
            result.lazy.append(len(result.tensors))
        result.tensors.append(tensor)


def _held(module: nn.Module | None, info: ParameterInfo) -> nn.Parameter | None:
    """Return the parameter that a module holds under a name now."""
    if module is None:
        return None
    name = info.name.removeprefix(f"{info.layer}.") if info.layer else info.name
    try:
        return module.get_parameter(name)
    except AttributeError:
        return None


def is_shapeless(tensor: object) -> bool:
    """Whether a tensor is one of a lazy module that has not been called yet."""
    return isinstance(tensor, nn.UninitializedParameter)


def _measures(tensor: torch.Tensor) -> dict[str, Any]:
    """Return what a parameter's description says of its values."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if is_shapeless(tensor):
        return {"shape": (), "dtype": dtype, "initial_rms": 0.0, "local_size": 0}
    return {
        "shape": tuple(tensor.shape),
        "dtype": dtype,
        "initial_rms": _rms(tensor),
        "shard": shard_of(tensor),
        "local_size": part_of(tensor).numel(),
    }


def _rms(tensor: torch.Tensor) -> float:
    local = part_of(tensor)
    if local.numel() == 0 or not local.is_floating_point() or local.is_meta:
        return 0.0
    half = {torch.float16, torch.bfloat16}
    wide = torch.float32 if local.dtype in half else None
    norm = torch.linalg.vector_norm(local.detach(), dtype=wide)
    return float(norm) / float(local.numel() ** 0.5)
