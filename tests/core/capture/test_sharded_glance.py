# SPDX-License-Identifier: MIT
"""What is looked at on thinned steps of a sharded parameter: this rank's part, and nothing else."""

from __future__ import annotations

from threading import get_ident
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from neuraldbg.capture.quick import PASSED, Quick
from neuraldbg.capture.sentry import Sentry


class Sharded(torch.Tensor):
    """As DTensor: `tolist` is refused, and a sum asks the other ranks."""

    def to_local(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)

    def tolist(self) -> Any:
        raise RuntimeError(".tolist() is not supported for tensor subclasses")

    def sum(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a collective")


@pytest.mark.parametrize("size", [4, 400])
def test_a_glance_at_a_sharded_gradient_reads_the_part_of_this_rank(size):
    values = torch.ones(size)
    bias = SimpleNamespace(grad=values.as_subclass(Sharded))
    sentry = Sentry()
    sentry.glance = cast("nn.Parameter", bias)
    broke: list[bool] = []
    lean = SimpleNamespace(sentry=sentry, gradient_broke=lambda: broke.append(True))
    quick = Quick(cast("Any", lean))
    optimizer = cast("Any", SimpleNamespace(param_groups=[{"params": [bias], "lr": 0.1}]))
    quick._thread, quick._optimizer, quick._groups = get_ident(), optimizer, 1
    quick._until_weighed = 2
    for is_broken in (False, True):
        values[1] = float("nan") if is_broken else 1.0
        assert sentry.is_broken() is is_broken
        quick._phase = PASSED
        quick.stepping(optimizer, (), {})
        assert bool(broke) is is_broken
