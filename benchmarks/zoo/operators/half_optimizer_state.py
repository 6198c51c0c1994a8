# SPDX-License-Identifier: MIT
"""Keep the optimizer's second moments in half precision: small ones become exactly zero."""

from seam import NotApplicable
from torch.optim.optimizer import register_optimizer_step_post_hook

FAILURES = ["numerical_error", "optimizer_instability", "exploding_gradients", "dead_neurons"]
CAUSES = ["optimizer_eps_underflow"]


def before(run):
    if not any("eps" in o.defaults and "betas" in o.defaults for o in run.optimizers()):
        message = "no optimizer of Adam's family"
        raise NotApplicable(message)

    def clamp(optimizer, *_):
        for state in optimizer.state.values():
            if "exp_avg_sq" in state:
                state["exp_avg_sq"].copy_(state["exp_avg_sq"].half())

    hook = register_optimizer_step_post_hook(clamp)
    run.undo.callback(hook.remove)
    return {"onset": [0, 10]}
