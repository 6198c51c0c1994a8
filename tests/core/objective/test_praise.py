# SPDX-License-Identifier: MIT
"""The factors of log-probabilities: all praise, or praise and blame."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributions import Categorical


@pytest.mark.parametrize(
    ("returns", "is_told"),
    [
        (lambda _: 5 + torch.rand(16), True),
        (lambda _: torch.randn(16), False),
        (lambda step: torch.rand(16) - float(step == 4), False),
    ],
    ids=["always good", "centred", "bad once"],
)
def test_returns_that_only_praise_are_noted(run_audit, returns, is_told):
    torch.manual_seed(1)
    policy = nn.Linear(6, 4)

    def losses(step):
        choice = Categorical(logits=policy(torch.randn(16, 6)))
        return [(-(choice.log_prob(choice.sample()) * returns(step)).mean(), [policy])]

    assert ("one_sided_praise" in run_audit(policy, losses, steps=9)) is is_told
