# SPDX-License-Identifier: MIT
"""Clear the gradients between the backward pass and the step."""

FAILURES = ["training_wiring"]
CAUSES = ["zero_grad_before_step"]


def inside(run):
    for optimizer in run.optimizers():
        step, had = optimizer.step, "step" in vars(optimizer)

        def cleared(*args, optimizer=optimizer, step=step, **kwargs):
            optimizer.zero_grad()
            return step(*args, **kwargs)

        optimizer.step = cleared
        back = (setattr, optimizer, "step", step) if had else (delattr, optimizer, "step")
        run.undo_inside.callback(*back)
    return {"onset": [0, 1]}
