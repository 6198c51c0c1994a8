# SPDX-License-Identifier: MIT
"""Cut the graph behind one of the model's blocks: `.detach()` left from debugging."""

import torch
from seam import NotApplicable

FAILURES = ["training_wiring", "vanishing_gradients"]
CAUSES = ["detached_graph"]


def before(run):
    names = [name for name, _ in run.weighted()]
    block = names[-2]
    module = run.model.get_submodule(block)

    def call(original, *args, **kwargs):
        out = original(*args, **kwargs)
        if not isinstance(out, torch.Tensor):
            message = f"{block!r} returns no tensor"
            raise NotApplicable(message)
        return out.detach()

    run.around(module, call)
    parents = {name.rpartition(".")[0] for name in names[:-1]}
    return {"layers": names[:-1] + sorted(parents), "onset": [0, 0]}
