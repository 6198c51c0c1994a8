# SPDX-License-Identifier: MIT
"""Norms of whole gradients against the slow, obvious way: float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neuraldbg.capture.norms import LARGE, norms_of


def obvious(gradient):
    return gradient.double().pow(2).sum().sqrt().item()


def found(gradients):
    (places, norms), *rest = norms_of(gradients)
    assert not rest
    assert list(places) == list(range(len(gradients)))
    return norms.tolist()


@given(
    sizes=st.lists(
        st.sampled_from([1, 7, LARGE - 1, LARGE, 2 * LARGE + 3]), min_size=1, max_size=5
    ),
    exponents=st.lists(st.integers(-30, 15), min_size=5, max_size=5),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_norms_are_those_of_float64_at_every_scale(sizes, exponents, seed):
    generator = torch.Generator().manual_seed(seed)
    gradients = [
        torch.randn(size, generator=generator) * 10.0**exponent
        for size, exponent in zip(sizes, exponents, strict=False)
    ]
    for gradient, exponent, norm in zip(gradients, exponents, found(gradients), strict=False):
        is_small = len(gradient) < LARGE  # torch's own, which loses digits below 1e-19
        if exponent > -19 or not is_small:
            assert norm == pytest.approx(obvious(gradient), rel=1e-4)


@pytest.mark.parametrize("scale", [1e-20, 1e-25, 1e-35])
def test_a_large_gradient_whose_squares_underflow_is_not_zero(scale):
    gradient = torch.randn(LARGE) * scale
    assert found([gradient])[0] == pytest.approx(obvious(gradient), rel=1e-3)


def test_a_few_elements_among_ones_that_underflow_count():
    gradient = torch.full((4 * LARGE,), 1e-25)
    gradient[5] = 1e-3
    assert found([gradient])[0] == pytest.approx(1e-3, rel=1e-6)


def test_zero_is_zero_and_what_is_not_finite_shows():
    zero, broken, huge = torch.zeros(LARGE), torch.ones(LARGE), torch.full((LARGE,), 1e30)
    broken[3] = float("nan")
    nothing, nan, inf = found([zero, broken, huge])
    assert nothing == 0.0
    assert nan != nan  # noqa: PLR0124
    assert inf == float("inf")


def test_views_sparse_and_half_precision_are_read_as_they_are():
    wide = torch.randn(256, 256)
    for gradient in (wide.t(), wide[::2], wide.to(torch.bfloat16), wide.to_sparse()):
        dense = gradient.to_dense() if gradient.is_sparse else gradient
        assert found([gradient])[0] == pytest.approx(obvious(dense), rel=1e-4)
