# SPDX-License-Identifier: MIT
"""Which layers come with trained weights: what initialisations never leave behind.

A fresh norm has a scale of one everywhere and has seen no batch; a fresh linear or convolution
layer has biases that are all equal, or within torch's own bound of one over the root of the fan-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from neuraldbg.capture.layers import is_shapeless

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARE = 0.5
"""Share of the layers that can tell from which a model counts as trained before."""
NORMS = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.modules.batchnorm._NormBase,  # noqa: SLF001 - base of all batch and instance norms
    nn.RMSNorm,
)
WEIGHTED = (nn.Linear, nn.modules.conv._ConvNd)  # noqa: SLF001 - base of all convolutions


def pretrained(models: Mapping[str, nn.Module]) -> dict[str, float]:
    """Return how many layers can tell and were trained, nothing where most of them were not."""
    told = [
        verdict
        for model in models.values()
        for module in model.modules()
        if (verdict := is_trained(module)) is not None
    ]
    if not told or sum(told) < SHARE * len(told):
        return {}
    return {"layers": float(len(told)), "trained": float(sum(told))}


def is_trained(module: nn.Module) -> bool | None:
    """Whether a layer's values are none that it was initialised with; None where it cannot tell."""
    own = module._parameters  # noqa: SLF001 - reading a parametrized weight computes
    if isinstance(module, NORMS):
        seen = _readable(module._buffers.get("num_batches_tracked"))  # noqa: SLF001
        if seen is not None and int(seen) > 0:
            return True
        scale = _readable(own.get("weight"))
        return None if scale is None else _varies(scale)
    bias, weight = _readable(own.get("bias")), _readable(own.get("weight"))
    if not isinstance(module, WEIGHTED) or bias is None or weight is None:
        return None
    fan_in = max(weight[0].numel(), 1)
    return _varies(bias) and float(bias.detach().abs().max()) > 1.01 * fan_in**-0.5


def _readable(value: torch.Tensor | None) -> torch.Tensor | None:
    if value is None or is_shapeless(value) or hasattr(value, "to_local"):
        return None
    if value.is_meta or value.device.type != "cpu":
        return None
    return value if value.numel() else None


def _varies(value: torch.Tensor) -> bool:
    flat = value.detach().flatten()
    return bool((flat != flat[0]).any())
