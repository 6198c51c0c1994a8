# SPDX-License-Identifier: MIT
"""Take out the clipping of gradients."""

import torch
from seam import NotApplicable

FAILURES = ["exploding_gradients", "optimizer_instability", "numerical_error"]
CAUSES = ["missing_gradient_clipping"]
HOSTS = (
    "healthy_density_below_zero",
    "stock_volatility_rnn",
    "gated_flow_irnn",
    "adding_problem_cell",
)


def inside(run):
    def unclipped(*_, **__):
        run.clipped = True
        return torch.tensor(0.0)

    for name in ("clip_grad_norm_", "clip_grad_value_"):
        run.patch(torch.nn.utils, name, unclipped, inside=True)

    def asked():
        if not getattr(run, "clipped", False):
            message = "the program clips nothing"
            raise NotApplicable(message)

    run.undo_inside.callback(asked)
    return {"onset": None}
