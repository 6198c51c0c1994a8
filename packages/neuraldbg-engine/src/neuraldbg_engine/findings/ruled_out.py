# SPDX-License-Identifier: LicenseRef-Proprietary
"""Which causes the place contradicts where the first value that is not finite was born."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.reasoning.causes.nonfinite import first_birth

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView


BORN_IN = {
    "log_of_nonpositive": ("log", "entr", "nll", "kl_div"),
    "sqrt_at_zero": ("sqrt", "norm", "pow", "std", "var", "dist", "hypot", "acos", "asin"),
    "division_by_zero": ("div", "recip", "sqrt", "pow", "mean", "norm", "mod", "remainder", "cos"),
    "exp_overflow": ("exp", "sinh", "cosh", "pow", "softplus", "elu", "softmax"),
    "infeasible_target": ("ctc",),
    "single_sample_statistics": ("std", "var", "norm", "mean", "div", "cov", "corr"),
    "fully_masked_attention": ("softmax", "attention", "logsumexp"),
}
"""Parts of the names of operations in which each cause can bear a value that is not finite."""

LATER = frozenset({"overflow", "gradient_overflow", "infinities_meet", "undefined", "nonfinite"})
"""Mechanisms that meet what an operation before them made."""


def ruled_out(view: CaseView) -> frozenset[str]:
    """Return the causes that the place of the birth contradicts.

    Where it was found, the operation must be one that the cause breaks; where it was not, or where
    it only met what was made before, a model that does not attend masks no attention.
    """
    note = first_birth(view)
    words = note.words if note is not None and note.kind == "nonfinite_birth" else {}
    operation = words.get("operation", "")
    if not operation or words.get("mechanism", "") in LATER:
        return frozenset(() if view.flow.has_attention else ("fully_masked_attention",))
    return frozenset(
        cause for cause, parts in BORN_IN.items() if not any(one in operation for one in parts)
    )
