# SPDX-License-Identifier: MIT
"""Leave the model in evaluation mode from the tenth step on."""

FAILURES = ["training_wiring"]
CAUSES = ["eval_mode_in_training"]
STEP = 10


def before(run):
    def change(step, args, kwargs):
        if step >= STEP:
            run.model.eval()
        return args, kwargs

    run.on_batch(change)
    return {"onset": [STEP, STEP]}
