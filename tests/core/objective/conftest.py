# SPDX-License-Identifier: MIT
"""Programs under audit, as a training loop would run them."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_leaves

from neuraldbg.capture.objective import ObjectiveAudit
from neuraldbg.capture.objective.audit import REPEATED


class Tapped:
    """Records the graph node of every module's output, as the session's taps do."""

    def __init__(self, models):
        self.models = models if isinstance(models, dict) else {"": models}
        self.nodes, self.modules, self.batch = {}, {}, 0
        for prefix, model in self.models.items():
            for name, module in model.named_modules():
                path = ".".join(part for part in (prefix, name) if part)
                self.modules[path] = module
                module.register_forward_hook(self._hook(path))
            model.register_forward_pre_hook(self._size)

    def _hook(self, path):
        def hook(_module, _given, output):
            for leaf in tree_leaves(output):
                if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None:
                    self.nodes.setdefault(path, []).append(leaf.grad_fn)

        return hook

    def _size(self, _module, given):
        self.batch = len(given[0]) if given and given[0].ndim else 0


@pytest.fixture
def tapped():
    """Return a function that taps one model or several by name."""
    return Tapped


@pytest.fixture
def run_audit():
    """Return a function that trains for some steps and returns what the audit said, by kind."""

    def run(models, losses, *, steps=8, lr=1e-3):
        """`losses(step)` yields pairs of a loss and the models that it trains."""
        taps, audit = Tapped(models), ObjectiveAudit()
        said = []
        for step in range(steps):
            for loss, trained in losses(step):
                before = torch.get_rng_state()
                said += audit.observe(step, loss, taps.nodes, taps.batch, taps.modules)
                assert torch.equal(before, torch.get_rng_state())
                parameters = [p for m in trained for p in m.parameters()]
                optimizer = torch.optim.SGD(parameters, lr=lr)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                audit.stepped({id(p) for p in parameters})
            taps.nodes.clear()
        assert audit.problems == []
        return {o.kind: o for o in said if o.kind not in REPEATED}

    return run
