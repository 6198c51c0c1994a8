# SPDX-License-Identifier: MIT
"""Rules for operations: which arguments make a finite value into a NaN or Inf, by operation name.

One table serves both ways in: operations seen in a re-run (arguments and output at hand) and
nodes of the autograd graph (what they saved). Missing arguments are None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from neuraldbg.capture.microscope import elementwise, reductions
from neuraldbg.capture.microscope.verdict import Verdict

Rule = Callable[[str, Sequence[Any], Tensor | None], Verdict | None]

RULES: dict[str, Rule] = {
    **dict.fromkeys(("log", "log2", "log10"), elementwise.log),
    **dict.fromkeys(("xlogy", "special_xlogy"), elementwise.xlogy),
    **dict.fromkeys(("div", "true_divide", "divide"), elementwise.divide),
    **dict.fromkeys(("reciprocal", "rsqrt"), elementwise.reciprocal),
    **dict.fromkeys(("remainder", "fmod"), elementwise.modulo),
    **dict.fromkeys(("exp", "expm1", "exp2", "cosh", "sinh"), elementwise.exponential),
    **dict.fromkeys(
        ("_softmax", "_log_softmax", "softmax", "log_softmax", "_safe_softmax"), reductions.softmax
    ),
    **dict.fromkeys(("logsumexp", "logcumsumexp"), reductions.softmax),
    **dict.fromkeys(("std", "var", "std_mean", "var_mean"), reductions.deviation),
    **dict.fromkeys(("acos", "asin", "acosh", "atanh", "erfinv"), elementwise.bounds),
    **dict.fromkeys(
        ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"), reductions.loss_mean
    ),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward", "nll_loss"), reductions.nll),
    **dict.fromkeys(("_ctc_loss", "ctc_loss"), reductions.ctc),
    **dict.fromkeys(
        (
            "native_layer_norm",
            "native_group_norm",
            "native_batch_norm",
            "_native_batch_norm_legit",
            "_batch_norm_with_update",
            "_fused_rms_norm",
        ),
        reductions.normalization,
    ),
    **dict.fromkeys(
        (
            "_linalg_slogdet",
            "slogdet",
            "linalg_inv_ex",
            "linalg_cholesky_ex",
            "_linalg_det",
            "_linalg_solve_ex",
            "linalg_pinv",
        ),
        reductions.determinant,
    ),
    "log1p": elementwise.log1p,
    "logit": elementwise.logit,
    "special_logit": elementwise.logit,
    "sqrt": elementwise.root,
    "pow": elementwise.power,
    "mean": reductions.mean,
    "_scaled_dot_product_flash_attention_for_cpu": reductions.attention,
    "_scaled_dot_product_attention_math": reductions.attention,
    "_scaled_dot_product_efficient_attention": reductions.attention,
    "_scaled_dot_product_flash_attention": reductions.attention,
}
"""By the bare operation name: no namespace, overload or trailing underscore."""


def judge(name: str, arguments: Sequence[Any], out: Tensor | None) -> Verdict | None:
    """Return why `name` made a non-finite value of these arguments, or None if no rule says."""
    rule = RULES.get(name)
    return rule(name, arguments, out) if rule is not None else None
