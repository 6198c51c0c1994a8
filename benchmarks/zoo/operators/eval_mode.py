# SPDX-License-Identifier: MIT
"""Leave the model in evaluation mode from the tenth step on."""

from seam import NotApplicable
from torch import nn

FAILURES = ["training_wiring"]
CAUSES = ["eval_mode_in_training"]
HOSTS = ("healthy_barometer_raw_columns",)
STEP = 10
MODAL = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
)


def before(run):
    if not any(isinstance(module, MODAL) for module in run.model.modules()):
        message = "no layer of the model behaves otherwise in evaluation mode"
        raise NotApplicable(message)

    def change(step, args, kwargs):
        if step >= STEP:
            run.model.eval()
        return args, kwargs

    run.on_batch(change)
    return {"onset": [STEP, STEP]}
