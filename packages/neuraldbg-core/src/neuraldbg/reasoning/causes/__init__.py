# SPDX-License-Identifier: MIT
"""One file per cause. `assessors()` is the list of all of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.reasoning.cause import CauseAssessor

MODULES = (
    "nan_in_input",
    "inf_in_input",
    "noise_schedule_invalid",
    "zero_variance_feature",
    "nonfinite",
    "optimizer_eps_underflow",
    "loss_scale_collapse",
    "half_precision_underflow",
    "missing_zero_grad",
    "zero_grad_before_step",
    "missing_optimizer_step",
    "clip_after_step",
    "clip_before_unscale",
    "eval_mode_in_training",
    "train_mode_in_eval",
    "accumulation_unscaled",
    "rank_divergence",
    "wrapper_bypassed",
    "observed",
    "detached_graph",
    "unnormalized_input",
    "unnormalized_target",
    "constant_input",
    "input_distribution_shift",
    "outlier_batch",
    "target_outlier",
    "init_too_large",
    "init_too_small",
    "saturating_activations",
    "deep_without_residual",
    "recurrent_vanishing",
    "dying_relu",
    "output_range_mismatch",
    "lr_decayed_to_zero",
    "scheduler_misstepped",
    "lr_too_low",
    "weight_decay_too_high",
    "norm_scale_gone",
    "value_divergence",
    "unscaled_reward",
    "policy_collapse",
    "missing_gradient_clipping",
    "stale_second_moment",
    "missing_warmup",
    "catastrophic_forgetting",
    "adapter_scale_too_high",
    "resume_without_optimizer_state",
    "residual_scale_growth",
    "wrong_loss_sign",
    "posterior_collapse",
    "mode_collapse",
    "discriminator_overpowers",
    "embedding_collapse",
    "attention_collapse",
    "oversmoothing",
    "router_collapse",
    "lr_too_high",
    "single_sample_statistics",
    "labels_unrelated_to_inputs",
    "unknown",
)
"""In this order they stand where confidences are equal: direct evidence first."""


def assessors() -> list[tuple[str, CauseAssessor]]:
    """Return (name, assess function) of every cause, in the order of `MODULES`."""
    return [(name, import_module(f"neuraldbg.reasoning.causes.{name}").assess) for name in MODULES]
