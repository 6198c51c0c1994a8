# SPDX-License-Identifier: MIT
"""Freeze all layers but the last: left from another experiment."""

FAILURES = ["training_wiring"]
CAUSES = ["frozen_parameters"]


def before(run):
    frozen = run.weighted()[:-1]
    for _, module in frozen:
        module.requires_grad_(False)  # noqa: FBT003 - torch's own signature
    parents = {name.rpartition(".")[0] for name, _ in frozen}
    return {"layers": [name for name, _ in frozen] + sorted(parents), "onset": [0, 0]}
