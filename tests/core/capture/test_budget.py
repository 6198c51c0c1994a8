# SPDX-License-Identifier: MIT
"""The overhead budget: held on slow and fast steps, and waived around events."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuraldbg.capture.budget import (
    CALM_AFTER,
    FULL_STEPS,
    HEARD_EVERY,
    LEAST,
    LOOKS,
    SEEN,
    SEEN_BY_GROWTH,
    UNSEEN,
    Budget,
)


class Loop:
    """A training loop with fixed costs, in seconds per step."""

    def __init__(self, share, *, step, full, heard, bare=0.0, free_s=0.0):
        self.budget = Budget(share, free_s=free_s)
        self.step, self.full, self.heard, self.bare = step, full, heard, bare
        self.is_on, self.count = True, 0

    def own(self):
        if self.is_on:
            return self.full
        is_heard = not self.budget.is_bare or self.count % HEARD_EVERY == 0
        return self.heard if is_heard else self.bare

    def run(self, steps):
        """Return (share of the step time that watching took, share of full steps)."""
        spent = watched = 0
        for _ in range(steps):
            self.count += 1
            own = self.own()
            spent, watched = spent + own, watched + self.is_on
            if self.is_on:
                self.budget.spend(own)
                self.is_on = self.budget.next_step(self.step + own, alarm=False)
                continue
            if own == self.heard:
                self.budget.thinned(own, self.step + own)
            self.is_on = self.budget.next_thinned()
        return spent / steps / self.step, watched / steps


@given(
    share=st.sampled_from([0.02, 0.05, 0.1]),
    step=st.floats(2e-3, 1.0),
    full=st.floats(1e-4, 5e-2),
    heard=st.floats(1e-6, 2e-5),
)
@settings(max_examples=60, deadline=None)
def test_budget_is_held_within_two_points(share, step, full, heard):
    loop = Loop(share, step=step, full=full, heard=heard)
    loop.run(1000)
    # What no clock sees is left room for: 1 - SEEN of the share.
    cost, watched = loop.run(max(4000, int(40 * full / (LEAST * step))))
    assert cost <= max(share, LEAST) + 0.02
    if full > share * step:
        assert cost >= SEEN * share - 0.02
    elif full < SEEN * share * step / 2:
        assert watched > 0.5


def test_steps_of_less_than_a_millisecond_become_bare_and_are_still_sampled():
    loop = Loop(0.05, step=3e-4, full=2e-3, heard=4e-5, bare=8e-6)
    loop.run(1000)
    assert loop.budget.is_bare
    cost, watched = loop.run(20_000)
    assert cost <= 0.1
    assert watched > 0


def test_bare_steps_end_once_hearing_fits_the_budget_again():
    loop = Loop(0.05, step=3e-4, full=2e-3, heard=4e-5)
    loop.run(2000)
    loop.step = 0.1
    loop.run(2000)
    assert not loop.budget.is_bare


def test_full_steps_never_leave_a_run_alone_for_a_tenth_of_its_length():
    loop = Loop(0.05, step=3e-4, full=6e-3, heard=4e-5, bare=8e-6)
    on = [i for i in range(30_000) if (loop.run(1), loop.is_on)[1]]
    gaps = [(late - early) / max(early, FULL_STEPS) for early, late in pairwise(on)]
    assert max(gaps) < 0.1 + 2 / FULL_STEPS
    # They are lent: in the long run the share holds all the same.
    assert loop.run(30_000)[0] < 0.05 + 0.02
    assert sum(i >= 20_000 for i in on) > SEEN_BY_GROWTH * 0.4


def test_a_full_step_is_booked_with_what_its_clock_does_not_see():
    budget = Budget(0.05, free_s=0.0)
    for _ in range(FULL_STEPS):
        budget.spend(1e-3)
        budget.next_step(1.1e-2, alarm=False)
    seen = budget.cadence
    for _ in range(400):
        if budget.is_on:
            budget.spend(1e-3)
            budget.next_step(1e-2 + 2e-3, alarm=False)  # half of it between its hooks
        else:
            budget.next_step(1e-2, alarm=False)
    assert budget.cadence == pytest.approx(2 * seen, rel=0.1)
    for _ in range(4000):
        is_on = budget.is_on
        budget.spend(1e-3 if is_on else 0.0)
        budget.next_step(1.0 if is_on else 1e-2, alarm=False)  # an evaluation, each time
    assert budget.cadence <= 1.1 * UNSEEN * seen


def test_first_steps_are_watched_in_full_whatever_they_cost():
    loop = Loop(0.05, step=1e-4, full=1e-2, heard=1e-5)
    assert loop.run(FULL_STEPS - 1)[1] == 1.0
    assert loop.run(500)[1] < 0.1


def test_first_seconds_of_watching_are_free():
    loop = Loop(0.05, step=1e-4, full=1e-3, heard=1e-5, free_s=0.5)
    assert loop.run(499)[1] == 1.0
    assert loop.run(2000)[1] < 0.1


@pytest.mark.parametrize("is_thinned", [True, False])
def test_taps_come_back_in_force_around_an_alarm(is_thinned):
    loop = Loop(0.05, step=1e-3, full=1e-3, heard=1e-5)
    while loop.is_on or loop.count < 500:
        loop.run(1)
    if is_thinned:
        loop.budget.alarm()
        loop.is_on = loop.budget.next_thinned()
    else:
        loop.is_on = loop.budget.next_step(1e-3, alarm=True)
    assert loop.is_on
    assert loop.run(CALM_AFTER - 2)[1] == 1.0
    assert loop.run(500)[1] < 0.2


def test_odd_step_earns_looks_until_they_are_a_habit():
    budget = Budget(0.05, free_s=0.0)
    for _ in range(200):
        budget.spend(2e-3 if budget.is_on else 1e-5)
        budget.next_step(1e-2, alarm=False)
    looks = []
    for _ in range(8):
        budget.look()
        row = []
        for _ in range(LOOKS + 4):
            budget.spend(2e-3 if budget.is_on else 1e-5)
            row.append(budget.next_step(1e-2, alarm=False))
        looks.append(sum(row))
    assert looks[0] >= LOOKS
    assert min(looks[1:]) < LOOKS


def test_handing_on_is_paid_from_the_same_account():
    loop = Loop(0.05, step=1e-2, full=5e-3, heard=1e-5)
    loop.run(2000)
    alone = loop.run(10_000)[1]
    for _ in range(50):
        loop.budget.handed_on(3e-3, 10)
    loop.run(2000)
    assert loop.run(10_000)[1] < alone / 2
    for _ in range(500):
        loop.budget.handed_on(1e-5, 10)
    loop.run(2000)
    assert loop.run(10_000)[1] == pytest.approx(alone, rel=0.1)


def test_what_an_odd_step_cost_is_not_taken_for_the_cost_of_thinned_ones():
    budget = Budget(0.05, free_s=0.0)
    for _ in range(300):
        budget.spend(2e-3 if budget.is_on else 1e-5)
        budget.next_step(1e-2, alarm=False)
    before = budget.cadence
    full = 0
    for turn in range(400):
        if turn % 20 == 0 and not budget.is_on:
            budget.look()
            budget.spend(3e-3)
        else:
            budget.spend(2e-3 if budget.is_on else 1e-5)
        full += budget.next_step(1e-2, alarm=False)
    assert budget.cadence == pytest.approx(before, rel=0.05)
    assert full < 400 / before * 1.2


def test_full_steps_that_look_free_for_once_do_not_stay_on():
    budget = Budget(0.05, free_s=0.0)
    for _ in range(FULL_STEPS):
        budget.spend(2e-3)
        budget.next_step(1e-2, alarm=False)
    assert not budget.is_on
    budget.spend(5e-3)  # the machine stalled in the only one that was clocked
    budget.next_step(1.5e-2, alarm=False)
    full = thinned = 0
    for _ in range(400):
        if budget.is_on:
            full += 1
            budget.spend(2e-3)
            budget.next_step(1e-2, alarm=False)
        else:
            thinned += 1
            if thinned % 32 == 0:  # few are clocked
                budget.thinned(own=1e-5, total=1e-2)
            budget.next_thinned()
    assert full < 60
