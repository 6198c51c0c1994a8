# SPDX-License-Identifier: MIT
"""What capture noted is told in words, and what it left empty is not told."""

from __future__ import annotations

import pytest

from neuraldbg.reasoning.particulars import particulars
from neuraldbg.schema.facts import Observation


@pytest.mark.parametrize(
    ("kind", "figures", "words", "told"),
    [
        (
            "sum_reduction",
            {"samples": 80.0, "summed": 80.0},
            {"loss": "mse", "over": "samples", "others": ""},
            "mse sums 80 values over samples, the batch has 80 samples",
        ),
        (
            "foreign_optimizer_parameters",
            {"stale": 2.0, "same_shape": 0.0, "tensors": 6.0},
            {"optimizer": "SGD"},
            "2 of the 6 tensors that SGD holds",
        ),
        (
            "temperature",
            {"scale": 0.07, "temperature": 14.286},
            {"softmax": "flat", "reads": "image.proj"},
            "the temperature is 14.3, the softmax is uniform, it reads layer 'image.proj'",
        ),
        (
            "frozen_parameters",
            {"share": 0.964, "layers": 5.0},
            {},
            "96% of all parameters are frozen",
        ),
        ("fresh_moments", {}, {"optimizer": "Adam"}, "the optimizer is Adam"),
        ("of_a_plugin", {"confidence": 0.9, "lost": 3.0}, {"cause": "x", "by": ""}, "lost 3"),
        ("temperature", {}, {}, ""),
    ],
)
def test_what_capture_noted_is_told_in_words(kind, figures, words, told):
    assert particulars(Observation(kind, 0, None, figures, words)) == told
