# SPDX-License-Identifier: MIT
"""Births in the optimizer: finite parameter, finite gradient, non-finite parameter afterwards."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuraldbg.capture.microscope.verdict import HALF, Verdict, count, flags
from neuraldbg.capture.ranks import part_of

if TYPE_CHECKING:
    from collections.abc import Mapping

SECOND_MOMENTS = ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "exp_inf")
"""State under whose root an optimizer divides (Adam, AMSGrad, RMSprop, Adagrad, Adamax)."""


def broken_parameters(optimizer: torch.optim.Optimizer) -> list[tuple[Tensor, dict[str, Any]]]:
    """Return the optimizer's non-finite parameters with their groups (one sync each)."""
    return [
        (p, group)
        for group in optimizer.param_groups
        for p in group["params"]
        if p.is_floating_point() and flags(p)
    ]


def judge_step(
    parameter: Tensor, state: Mapping[str, Any], group: Mapping[str, Any], kind: str
) -> Verdict:
    """Say how a step made this parameter non-finite.

    `state` is the optimizer's state of the parameter after the step.
    """
    parameter = part_of(parameter.detach())
    dtype = str(parameter.dtype)[6:]
    figures: dict[str, float] = {
        "count": float(count(~torch.isfinite(parameter))),
        "size": float(parameter.numel()),
        "lr": float(group.get("lr", math.nan)),
    }
    moment = next(
        (part_of(state[n]) for n in SECOND_MOMENTS if isinstance(state.get(n), Tensor)), None
    )
    eps = float(group.get("eps", math.nan))
    if moment is not None and moment.numel():
        denominator = moment.detach().float().clamp(min=0).sqrt()
        held = float(torch.tensor(eps, dtype=moment.dtype)) if not math.isnan(eps) else 0.0
        zeros = count((moment.detach() == 0) & ~torch.isfinite(parameter))
        figures |= {
            "eps": eps,
            "sqrt_v_minimum": float(denominator.min()),
            "sqrt_v_zeros": float(zeros),
        }
        if zeros and (held == 0.0 or moment.dtype in HALF):
            words = (
                f"{kind} divides by sqrt(v) + eps; v is 0 in {zeros} places and eps {eps:g} is "
                f"{held:g} in {str(moment.dtype)[6:]} (parameter {dtype})"
            )
            return Verdict(kind, "eps_underflow", words, "optimizer_eps_underflow", 0.95, figures)
        if flags(moment):
            held_in = str(moment.dtype)[6:]
            words = f"the second moment of {kind} is not finite in {held_in}: squares overflowed"
            cause = "optimizer_eps_underflow" if moment.dtype in HALF else None
            return Verdict(kind, "state_overflow", words, cause, 0.6, figures)
    if parameter.dtype is torch.float16:
        words = f"the step of {kind} (lr {figures['lr']:g}) left the range of float16 (65504)"
        return Verdict(kind, "half_overflow", words, "half_precision_overflow", 0.7, figures)
    words = (
        f"the step of {kind} (lr {figures['lr']:g}) made a {dtype} parameter non-finite "
        "from finite gradients"
    )
    return Verdict(kind, "overflow", words, None, 0.4, figures)
