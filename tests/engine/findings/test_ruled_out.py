# SPDX-License-Identifier: MIT
"""The operation in which a value that is not finite was born rules causes out."""

from __future__ import annotations

import findings_kit as kit
import pytest

from neuraldbg.schema.facts import Observation
from neuraldbg.schema.run import INPUT, LayerInfo, LayerRole
from neuraldbg.testing import make_run


def born(operation, mechanism="", run=kit.RUN):
    words = {"operation": operation, "phase": "forward", "mechanism": mechanism}
    note = Observation("nonfinite_birth", 0, "fc1", {}, words)
    return kit.case(run, observations=lambda step: [note] if step == 0 else []).ruled_out


@pytest.mark.parametrize(
    ("operation", "possible", "impossible"),
    [
        ("std", "single_sample_statistics", {"log_of_nonpositive", "infeasible_target"}),
        ("log_softmax", "fully_masked_attention", {"sqrt_at_zero", "infeasible_target"}),
        ("ctc_loss", "infeasible_target", {"fully_masked_attention", "exp_overflow"}),
    ],
)
def test_only_causes_that_break_the_operation_are_possible(operation, possible, impossible):
    out = born(operation)
    assert possible not in out
    assert impossible <= out


def test_operation_that_met_infinities_made_before_it_contradicts_nothing():
    assert "exp_overflow" in born("div")
    assert born("div", "infinities_meet") == {"fully_masked_attention"}


def test_without_a_place_only_a_mask_without_attention_is_ruled_out():
    assert kit.case().ruled_out == {"fully_masked_attention"}
    attends = LayerInfo(
        path="attn",
        kind="MultiheadAttention",
        role=LayerRole.ATTENTION,
        order=0,
        parents=(INPUT,),
        is_output=True,
    )
    assert kit.case(make_run(attends)).ruled_out == frozenset()
