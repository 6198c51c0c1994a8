# SPDX-License-Identifier: MIT
"""Never step: the line is missing."""

FAILURES = ["training_wiring"]
CAUSES = ["missing_optimizer_step"]


def inside(run):
    for optimizer in run.optimizers():
        step = vars(optimizer).get("step", run)
        optimizer.step = lambda *_, **__: None
        back = (delattr, optimizer, "step") if step is run else (setattr, optimizer, "step", step)
        run.undo_inside.callback(*back)
    return {"onset": [0, 1]}
