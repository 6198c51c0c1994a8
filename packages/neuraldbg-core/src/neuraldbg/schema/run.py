# SPDX-License-Identifier: MIT
"""What is known of a run before its first step ends: models, layers, parameters, data flow."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1
ROUNDING = 1e-5
"""How far the RMS of a vector of ones may be from 1: norms are summed in the tensor's own dtype."""
INPUT = "<input>"
"""The parent of layers that read the model's own inputs."""


class Frozen(BaseModel):
    """Base of every record: immutable, no unknown fields; NaN and Inf survive JSON as strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class LayerRole(StrEnum):
    """What a layer does, as far as the rules care."""

    LINEAR = "linear"
    CONVOLUTION = "convolution"
    RECURRENT = "recurrent"
    ATTENTION = "attention"
    NORMALIZATION = "normalization"
    ACTIVATION = "activation"
    EMBEDDING = "embedding"
    DROPOUT = "dropout"
    POOLING = "pooling"
    CONTAINER = "container"
    OTHER = "other"


class LayerInfo(Frozen):
    """One tapped module. Its place in `RunInfo.layers` is its row in the facts' layer arrays.

    `path` is that of `named_modules()`, prefixed `NAME.` where several models are watched; the
    root of an unnamed model is `""`.
    """

    path: str
    kind: str
    role: LayerRole
    model: str = ""
    activation: str | None = None
    """Activation function applied to this layer's output (its own, for an activation module)."""
    parents: tuple[str, ...] = ()
    """Paths of the layers whose output flows into this one; `INPUT` for the model's inputs."""
    order: int = -1
    """Position in the execution order of the first step; -1 if it never ran."""
    is_output: bool = False
    """Whether its output reaches the loss through no other layer."""
    has_residual: bool = False
    """Whether its input is a sum with a path around at least one other weight layer."""
    is_flat_on_output: bool = True
    """Whether saturation is measured on the output (else on the input of the activation)."""
    units: int = 0
    fan_in: int = 0


class ParameterInfo(Frozen):
    """One parameter. Its place in `RunInfo.parameters` is its row in the facts' parameter arrays.

    Tied parameters appear once, under their first name.
    """

    name: str
    """Full path, prefixed `NAME.` where several models are watched."""
    layer: str
    """Path of the module that owns it."""
    shape: tuple[int, ...]
    dtype: str
    is_trainable: bool
    is_declared_frozen: bool = False
    initial_rms: float = 0.0
    """Root mean square before the first step."""
    shared_with: tuple[str, ...] = ()
    """Other names of the same tensor (weight tying)."""
    shard: tuple[int, int] = (0, 1)
    """(index, count): which part of it this rank holds, and figures speak of; (0, 1): all of it."""
    local_size: int | None = None
    """Elements that this rank holds; None: not known (traces of 2.0.0)."""


class OptimizerInfo(Frozen):
    """One optimizer that stepped while the run was watched."""

    kind: str
    """Class name, e.g. `AdamW`."""
    groups: int
    parameters: tuple[str, ...]
    """Names of the watched parameters it owns."""
    foreign: int = 0
    """How many of its tensors belong to no watched model."""
    options: dict[str, float | str | bool | None] = {}
    """Scalar hyper-parameters of the first group at its first step (lr, momentum, beta1, ...)."""


class InputInfo(Frozen):
    """One tensor that a watched model receives. Its place is its row in the facts' input array."""

    name: str
    """`MODEL:0`, `MODEL:1`, ... by position, `MODEL:keyword` by keyword (`MODEL` may be empty)."""
    model: str
    shape: tuple[int, ...]
    dtype: str


class RunInfo(Frozen):
    """Static facts of one watched run. Grows during the first steps, then stays."""

    schema_version: int = SCHEMA_VERSION
    neuraldbg_version: str
    torch_version: str
    created: str = ""
    """UTC, ISO 8601."""
    rank: int = 0
    world_size: int = 1
    ranks: tuple[int, ...] = ()
    """Ranks that a merged trace joins; empty for the trace of one rank."""
    models: tuple[str, ...] = ("",)
    layers: tuple[LayerInfo, ...] = ()
    parameters: tuple[ParameterInfo, ...] = ()
    inputs: tuple[InputInfo, ...] = ()
    optimizers: tuple[OptimizerInfo, ...] = ()
    warnings: tuple[str, ...] = ()
    """What could not be watched and why, one sentence each."""

    def layer(self, path: str) -> LayerInfo | None:
        """Return the layer at `path`, or None."""
        return next((layer for layer in self.layers if layer.path == path), None)

    def scale_rows(self) -> tuple[int, ...]:
        """Return the rows of parameters that scale what is normalised, unit by unit.

        Those of normalisation layers, but for biases; and vectors that start as all ones in layers
        of the user's own, where only a factor is born neutral.
        """
        roles = {layer.path: layer.role for layer in self.layers}
        own = {LayerRole.OTHER, LayerRole.CONTAINER}
        rows = []
        for row, parameter in enumerate(self.parameters):
            role = roles.get(parameter.layer, LayerRole.CONTAINER)
            is_vector = sum(size > 1 for size in parameter.shape) <= 1
            if not is_vector or not parameter.is_trainable or parameter.name.endswith("bias"):
                continue
            if role is LayerRole.NORMALIZATION or (
                role in own and abs(parameter.initial_rms - 1.0) < ROUNDING
            ):
                rows.append(row)
        return tuple(rows)
