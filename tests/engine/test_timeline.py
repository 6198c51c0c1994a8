# SPDX-License-Identifier: MIT
"""An onset is a distribution over steps: its mode, its interval, who was first."""

from __future__ import annotations

import pytest

from neuraldbg_engine.timeline import Onset, earliest


def test_exact_onset_is_one_step():
    onset = Onset.exact(7)
    assert (onset.best, onset.interval(0.99)) == (7, (7, 7))


def test_onset_within_a_range_is_most_probable_at_its_best_and_covers_the_range():
    onset = Onset.within(100, 160, best=110)
    assert onset.best == 110
    assert onset.interval(1.0) == (100, 160)
    assert onset.interval(0.5)[1] - onset.interval(0.5)[0] < 40


def test_wide_range_is_kept_in_few_spans():
    onset = Onset.within(0, 99_999)
    assert len(onset.steps) <= 64
    assert onset.interval(1.0) == (0, 99_999)


def test_shortest_interval_leaves_the_thin_tail_out():
    assert Onset((1, 2, 3, 50), (0.1, 0.5, 0.35, 0.05)).interval(0.9) == (1, 3)


def test_weights_that_are_no_distribution_are_refused():
    with pytest.raises(ValueError, match="sum to"):
        Onset((1, 2), (0.5, 0.4))
    with pytest.raises(ValueError, match="spans"):
        Onset((), ())


def test_earlier_onset_leads_and_equal_ones_tie():
    first, second = Onset.exact(3), Onset.within(10, 20)
    assert first.lead(second) == 1.0
    assert second.lead(first) == 0.0
    assert first.lead(first) == 0.5
    assert first.is_before(second)
    assert not second.is_before(second)


def test_earliest_onset_is_the_one_with_the_first_mode():
    assert earliest([Onset.exact(9), Onset.exact(4)]) == Onset.exact(4)
    assert earliest([]) is None
