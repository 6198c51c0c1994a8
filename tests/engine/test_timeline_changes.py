# SPDX-License-Identifier: MIT
"""The posterior of a change: its mode is near, its interval covers, noise and decimation widen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuraldbg_engine.timeline import change_point

QUICK = settings(max_examples=60, deadline=None, derandomize=True)


def series(seed, length, at, size, noise=1.0, *, bend=False):
    times = np.arange(length)
    shape = np.maximum(times - at + 1, 0) / 5 if bend else (times >= at).astype(float)
    return 3 + size * shape + noise * np.random.default_rng(seed).normal(size=length)


def width(change):
    first, last = change.onset.interval(0.9)
    return last - first + 1


@QUICK
@given(
    st.integers(0, 2**31),
    st.integers(40, 400),
    st.floats(0.1, 0.9),
    st.sampled_from([-1, 1]),
    st.booleans(),
)
def test_mode_is_near_the_true_change(seed, length, share, sign, bend):
    at = max(int(share * length), 5)
    change = change_point(series(seed, length, at, 6.0 * sign, bend=bend), np.arange(length))
    assert abs(change.onset.best - at) <= 3
    assert change.evidence > 0
    assert np.sign(change.after - change.before) == sign


@pytest.mark.parametrize("bend", [False, True])
@pytest.mark.parametrize("size", [1.0, 2.0])
def test_interval_covers_the_change_at_about_its_mass(size, bend):
    hits = 0
    for seed in range(150):
        at = 20 + seed % 60
        change = change_point(series(seed, 100, at, size, bend=bend), np.arange(100))
        first, last = change.onset.interval(0.9)
        hits += first <= at <= last
    assert 0.83 <= hits / 150 <= 1.0


@QUICK
@given(st.integers(0, 2**31), st.floats(-100, 100), st.floats(0.01, 100))
def test_units_do_not_matter(seed, offset, scale):
    values = series(seed, 80, 50, 3.0)
    plain = change_point(values, np.arange(80))
    other = change_point(offset + scale * values, np.arange(80))
    assert other.onset.best == plain.onset.best
    assert other.evidence == pytest.approx(plain.evidence, rel=1e-3)


def test_noise_widens_the_interval():
    calm = np.median(
        [width(change_point(series(s, 200, 90, 1, 0.2), np.arange(200))) for s in range(20)]
    )
    wild = np.median(
        [width(change_point(series(s, 200, 90, 1, 1.0), np.arange(200))) for s in range(20)]
    )
    assert wild > 3 * calm


@QUICK
@given(st.integers(0, 2**31), st.sampled_from([4, 16]))
def test_decimation_widens_the_interval_and_still_covers(seed, stride):
    values = series(seed, 640, 400, 4.0)
    exact = change_point(values, np.arange(640))
    firsts = np.arange(0, 640, stride)
    means = values.reshape(-1, stride).mean(axis=1)
    rows = change_point(means, firsts, firsts + stride - 1)
    first, last = rows.onset.interval(0.9)
    assert first <= 400 <= last
    assert width(rows) >= stride > width(exact)


@QUICK
@given(st.integers(0, 2**31))
def test_rows_that_were_not_measured_are_part_of_the_interval(seed):
    values = series(seed, 120, 60, 8.0)
    values[55:66] = np.nan
    first, last = change_point(values, np.arange(120)).onset.interval(0.9)
    assert (first, last) == (55, 66)


def test_white_noise_has_no_change():
    noise = np.random.default_rng(0)
    found = [change_point(noise.normal(size=150), np.arange(150)).evidence > 0 for _ in range(100)]
    assert sum(found) <= 3


def test_single_outlier_is_no_change():
    values = series(1, 100, 200, 0.0, 0.1)
    values[40] += 50
    assert change_point(values, np.arange(100)).evidence < 0


def test_direction_leaves_the_other_way_out():
    falls = series(0, 100, 50, -5.0)
    assert change_point(falls, np.arange(100), direction=-1).onset.best == 50
    rises = change_point(falls, np.arange(100), direction=1)
    assert rises is None or rises.onset.best != 50


def test_few_values_and_constants_have_none():
    assert change_point([1.0, 2.0, 3.0], [0, 1, 2]) is None
    assert change_point(np.full(50, 2.0), np.arange(50)) is None


def test_floor_is_the_least_noise_believed():
    values = np.where(np.arange(60) < 30, 1.0, 1.001)
    assert change_point(values, np.arange(60)).evidence > 0
    assert change_point(values, np.arange(60), floor=0.05).evidence < 0
