# SPDX-License-Identifier: MIT
"""What a loss curve says: learned, stuck, diverged, broken, under noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.reasoning.curve import Curve


def curve(values, ignorant=math.nan):
    values = np.asarray(values, dtype=np.float64)
    return Curve(np.arange(len(values)), values, ignorant)


def noise(count, scale=0.05, seed=0):
    return np.exp(scale * np.random.default_rng(seed).normal(size=count))


FALLING = 2 * 0.98 ** np.arange(300) + 0.1
FLAT = np.full(300, 1.4)


def test_falling_loss_learned():
    one = curve(FALLING * noise(300))
    assert one.learned
    assert [one.is_stuck, one.is_diverged, one.is_broken] == [False] * 3


def test_flat_loss_is_stuck_and_has_not_learned():
    one = curve(FLAT * noise(300))
    assert one.is_stuck
    assert [one.learned, one.is_diverged] == [False] * 2


@given(st.floats(1e-6, 1e6))
def test_verdicts_do_not_depend_on_the_scale_of_the_loss(scale):
    for values in (FALLING * noise(300), FLAT * noise(300)):
        plain, scaled = curve(values), curve(scale * values)
        assert plain.learned == scaled.learned
        assert plain.is_stuck == scaled.is_stuck
        assert plain.is_diverged == scaled.is_diverged


def test_growing_loss_diverged():
    assert curve(FLAT * noise(300) * 1.02 ** np.arange(300)).is_diverged


@pytest.mark.parametrize("spread", [0.3, 1.5])
def test_a_loss_that_blew_up_for_good_diverged_however_noisy_it_is_up_there(spread):
    values = 0.5 * noise(300)
    values[1:] *= 1e9 * noise(299, spread)
    one = curve(values)
    assert [one.is_diverged, one.is_poor, one.learned] == [True, True, False]


def test_a_loss_that_its_first_update_threw_up_has_not_learned_on_its_way_down():
    values = np.concatenate([[1.0], 50.0 + 600.0 * 0.9 ** np.arange(200)])
    one = curve(values * noise(201))
    assert one.start == pytest.approx(1.0, rel=0.3)
    assert [one.is_diverged, one.learned] == [True, False]


@given(st.integers(0, 200))
def test_heavy_tailed_noise_around_one_level_is_no_divergence(seed):
    """The first of such losses may be a small one by chance."""
    one = curve(noise(300, 2.0, seed))
    assert not one.is_diverged


def test_one_bad_batch_does_not_break_a_run_that_recovers():
    values = FALLING * noise(300)
    values[100] = math.nan
    one = curve(values)
    assert one.broke_at == 100
    assert not one.is_broken
    assert one.learned


def test_lasting_nan_breaks_it():
    values = FALLING.copy()
    values[200:] = math.nan
    one = curve(values)
    assert (one.broke_at, one.is_broken, one.learned) == (200, True, False)


def test_a_fall_from_a_wild_start_to_chance_is_no_learning():
    values = np.concatenate([[35.0, 9.0, 2.0], np.full(200, 0.693)]) * noise(203, 0.01)
    assert curve(values).learned
    assert not curve(values, ignorant=0.693).learned


def test_losses_below_zero_are_judged_by_their_noise():
    falling = -5 * (1 - 0.98 ** np.arange(300)) + 0.1 * np.random.default_rng(0).normal(size=300)
    assert curve(falling).is_signed
    assert curve(falling).learned


def test_noise_is_that_of_the_run_not_of_its_explosion():
    values = noise(300, 0.02)
    calm = curve(values).noise
    values[225:] *= np.exp(np.linspace(0, 20, 75))
    assert curve(values).noise == pytest.approx(calm, rel=0.5)


def test_jumps_name_the_step_and_the_ratio():
    values = noise(100)
    values[70] = 50.0
    (jump,) = curve(values).jumps
    assert jump[0] == 70
    assert jump[2] == pytest.approx(50, rel=0.1)


def test_empty_and_nan_curves_say_nothing():
    for one in (curve([]), curve([math.nan] * 5)):
        assert not one
        assert not one.learned
        assert one.progress == 0.0
