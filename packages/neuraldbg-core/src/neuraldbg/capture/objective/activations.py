# SPDX-License-Identifier: MIT
"""What the nodes of the autograd graph stand for: activations, normalisations, layout, weights.

Names are those of the nodes' classes without the trailing variant number: `ReluBackward0` is
`Relu`. A node that stands nowhere here is an ordinary operation.
"""

from __future__ import annotations

from typing import Any

ACTIVATIONS = {
    "Celu": "celu",
    "Clamp": "clamp",
    "ClampMin": "clamp",
    "ClampMax": "clamp",
    "Gelu": "gelu",
    "Glu": "glu",
    "Hardshrink": "hardshrink",
    "Hardsigmoid": "hardsigmoid",
    "Hardswish": "hardswish",
    "LeakyRelu": "leaky_relu",
    "LogSigmoid": "logsigmoid",
    "LogSoftmax": "log_softmax",
    "Mish": "mish",
    "PreluKernel": "prelu",
    "Relu": "relu",
    "RreluWithNoise": "leaky_relu",
    "Sigmoid": "sigmoid",
    "Silu": "silu",
    "Softmax": "softmax",
    "Softplus": "softplus",
    "Softshrink": "softshrink",
    "Tanh": "tanh",
    "Threshold": "relu",
}
"""Node name -> activation name; `Elu` and `Hardtanh` have variants, see `activation_of`."""

LAYOUT = frozenset(
    [
        "Alias",
        "AsStrided",
        "Clone",
        "Contiguous",
        "Detach",
        "Expand",
        "Flatten",
        "MoveDim",
        "Narrow",
        "NativeDropout",
        "FusedDropout",
        "Permute",
        "Reshape",
        "ReshapeAlias",
        "Select",
        "Slice",
        "Split",
        "SplitWithSizes",
        "Squeeze",
        "Swapaxes",
        "Swapdims",
        "T",
        "ToCopy",
        "ToDtype",
        "Transpose",
        "Unbind",
        "Unfold",
        "Unsqueeze",
        "UnsafeSplit",
        "UnsafeView",
        "View",
        "ViewAs",
        "Index",
        "IndexSelect",
        "Gather",
    ]
)
"""Nodes that move or pick values and do not change them (dropout included)."""

VIEWS = LAYOUT - {"Index", "IndexSelect", "Gather", "NativeDropout", "FusedDropout"}

NORMALIZATIONS = frozenset(
    [
        "NativeLayerNorm",
        "NativeBatchNorm",
        "NativeGroupNorm",
        "CudnnBatchNorm",
        "MiopenBatchNorm",
        "BatchNormWithUpdate",
        "FusedRmsNorm",
        "RmsNorm",
        "WeightNormInterface",
    ]
)

WEIGHTED = frozenset(
    [
        "Addmm",
        "Mm",
        "Bmm",
        "Baddbmm",
        "Addbmm",
        "Linear",
        "Convolution",
        "ConvolutionOverrideable",
        "MkldnnLinear",
        "Mv",
        "Addmv",
        "MkldnnRnnLayer",
        "CudnnRnn",
        "MiopenRnn",
        "ThnnFusedLstmCell",
        "ThnnFusedGruCell",
        "SlowConv2D",
    ]
)
"""Nodes that may multiply by a weight matrix."""

OPAQUE = ("CheckpointFunction", "CompiledFunction", "_CheckpointFrame", "GraphFunction")
"""Nodes that hide the operations and layers inside them."""


def short_name(node: Any) -> str:
    """Return the node's operation: `ReluBackward0` -> `Relu`."""
    name = type(node).__name__
    if name in {"CppFunction", "PyNode", "BackwardCFunction"}:
        name = node.name()
    head, found, tail = name.rpartition("Backward")
    return head if found and (not tail or tail.isdigit()) else name


def activation_of(node: Any, name: str) -> str | None:
    """Return the activation function that `node` applied, None where it is none.

    Args:
        node: The autograd node.
        name: Its `short_name`.
    """
    if name == "Elu":
        return "selu" if getattr(node, "_saved_scale", 1.0) > 1.0 else "elu"
    if name == "Hardtanh":
        low, high = getattr(node, "_saved_min_val", -1.0), getattr(node, "_saved_max_val", 1.0)
        return "relu6" if (low, high) == (0, 6) else "hardtanh"
    return ACTIVATIONS.get(name)
