# SPDX-License-Identifier: MIT
"""Every robust figure against a slow, obvious twin."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from neuraldbg import baseline

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)
SERIES = hnp.arrays(np.float64, st.integers(2, 60), elements=NUMBERS)
GAPPY = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 30), st.integers(1, 5)),
    elements=st.one_of(NUMBERS, st.just(math.nan)),
)


def slow_median_mad(column):
    known = [x for x in column if not math.isnan(x)]
    if not known:
        return math.nan, math.nan
    middle = statistics.median(known)
    return middle, 1.4826 * statistics.median(abs(x - middle) for x in known)


@given(GAPPY)
def test_median_mad_equals_twin_per_layer(data):
    middle, scale = baseline.median_mad(data)
    for column in range(data.shape[1]):
        slow = slow_median_mad(data[:, column].tolist())
        np.testing.assert_allclose((middle[column], scale[column]), slow, rtol=1e-9, atol=1e-6)


@given(SERIES, st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_theil_sen_equals_twin(values, slope, offset):
    x = np.arange(len(values), dtype=np.float64)
    y = values + slope * x + offset
    pairs = [(y[j] - y[i]) / (x[j] - x[i]) for i in range(len(x)) for j in range(i + 1, len(x))]
    found, _ = baseline.theil_sen(x, y)
    assert found == pytest.approx(statistics.median(pairs), rel=1e-9, abs=1e-6)


def test_theil_sen_ignores_a_quarter_of_outliers():
    x = np.arange(100.0)
    y = 3 * x + 1
    y[::4] = 1e9
    slope, intercept = baseline.theil_sen(x, y)
    assert slope == pytest.approx(3)
    assert intercept == pytest.approx(1)


def test_theil_sen_without_two_points_is_nan():
    assert math.isnan(baseline.theil_sen([1.0], [1.0])[0])
    assert math.isnan(baseline.theil_sen([1.0, 1.0], [1.0, 2.0])[0])


@given(SERIES, st.integers(1, 15))
def test_rolling_median_equals_twin(values, window):
    half = window // 2
    slow = [
        statistics.median(values[max(0, i - half) : i + half + 1].tolist())
        for i in range(len(values))
    ]
    np.testing.assert_allclose(baseline.rolling_median(values, window), slow)


@given(GAPPY, st.integers(2, 20))
def test_window_equals_twin_when_refreshed_every_step(data, length):
    window = baseline.Window(data.shape[1], length, refresh=1)
    for row in data:
        window.push(row)
    for column in range(data.shape[1]):
        slow = slow_median_mad(data[-length:, column].tolist())
        np.testing.assert_allclose(
            (window.middle[column], window.scale[column]), slow, rtol=1e-9, atol=1e-6
        )


@given(SERIES, st.floats(0.1, 0.99))
def test_ema_equals_weighted_mean_of_the_past(values, decay):
    ema = baseline.Ema(1, decay)
    for value in values:
        ema.push(np.array([value]))
    weights = decay ** np.arange(len(values))[::-1]
    assert ema.value[0] == pytest.approx(
        np.sum(weights * values) / weights.sum(), rel=1e-6, abs=1e-4
    )


def test_ema_skips_what_was_not_measured():
    ema = baseline.Ema(2, 0.5)
    ema.push(np.array([1.0, math.nan]))
    ema.push(np.array([math.nan, math.nan]))
    assert ema.value[0] == 1.0
    assert math.isnan(ema.value[1])


@given(hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-10, 10)))
def test_cusum_equals_twin(z):
    fast = baseline.Cusum(1, slack=0.5, clip=4.0)
    up = down = 0.0
    for value in z:
        fast.push(np.array([value]))
        step = min(max(value, -4.0), 4.0)
        up, down = max(0.0, up + step - 0.5), max(0.0, down - step - 0.5)
        assert fast.up[0] == pytest.approx(up)
        assert fast.down[0] == pytest.approx(down)


def test_cusum_names_the_step_from_which_it_rose():
    cusum = baseline.Cusum(1)
    for z in [0.0] * 10 + [2.0] * 5:
        cusum.push(np.array([z]))
    assert cusum.up_since[0] == 10


def test_page_hinkley_finds_the_shift_and_is_quiet_without_one():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=400)
    shifted = np.concatenate([flat[:200], 3 + flat[200:]])
    assert baseline.page_hinkley(flat, 0.5, 20.0) is None
    start, alarm = baseline.page_hinkley(shifted, 0.5, 20.0)
    assert 195 <= start <= 202 < alarm < 215


def test_difference_noise_does_not_count_a_trend():
    rng = np.random.default_rng(1)
    noise = rng.normal(scale=0.1, size=2000)
    assert baseline.difference_noise(noise + np.linspace(100, 0, 2000)) == pytest.approx(
        0.1, rel=0.1
    )


def test_robust_z_takes_no_tiny_scale_for_real():
    assert baseline.robust_z(1.1, 1.0, 0.0, 0.1) == pytest.approx(1.0)
