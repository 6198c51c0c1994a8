# SPDX-License-Identifier: MIT
"""The overhead budget: which steps are watched in full, from measured cost and step time.

A step that is not watched in full is *thinned*: no tap runs, and of all figures only the loss, the
gradient norms, the learning rate and the counts of the ledger are kept. Where even that exceeds
the budget, most thinned steps are bare: the loss and the learning rate are kept.

The account is an integral: what is not spent is saved up until it pays for a full step, so the
share holds over any stretch of steps, whatever single steps cost.
"""

from __future__ import annotations

import math

FULL_STEPS = 64
"""First steps that are always watched in full. Heuristic: faults of initialisation, wiring and
objective show there, and the cost estimate needs them."""
FREE_S = 0.25
"""Steps go on in full while watching has cost less than this many seconds in all. Heuristic: nobody
feels a quarter of a second, and in a fast program it buys the first hundreds of steps."""
DEEP_EVERY = 4
"""Sampled shares, ranks and second moments every so many watched steps after the first 16, and on
all of them once fewer than one step in so many is watched."""
CALM_AFTER = 32
"""Steps after the last alarm until thinning resumes; they are not charged."""
SEEN_BY_GROWTH = 12
"""A run is watched in full at least so often while its steps become e times as many, whatever that
costs: a fault that begins in mid-run then shows on full steps before a tenth more has passed.
Heuristic: eight full steps while a run doubles; in a fast program, where they are dear, that is
hundredths of a second. They are charged as any other, up to a debt of `LOOKS` of them."""
LOOKS = 4
"""Full steps after a thinned one that was odd. They are charged: where the account is that many
steps behind already, oddness is the run's habit and earns no look."""
SEEN = 0.7
"""Share of the cost that the account sees. Measured: reading activations also displaces the
caches of the training itself, which no clock of ours can tell apart."""
LEAST = 0.01
"""Share of the step time that full steps get in any case, where thinned ones alone exceed the
budget. Heuristic: one percent on top is not felt, and blindness would be."""
HEARD_EVERY, HEARD_RARELY = 16, 64
"""Thinned steps to one that is not bare, where hearing them all exceeds the budget: as often as
half of it allows, within these."""
WEIGHED = 4
"""Of so many that are not bare all but one are only weighed, where nothing is clipped. Measured: a
heard one takes three times what its clock sees, as the shortest way of hearing ends with it; with
that many weighed, what is booked is what they take."""
UNSEEN = 3.0
"""A full step is booked with what it takes beyond other steps, up to so many times what its clock
saw: what waits between its hooks, and what it threw out of the caches, is no training either.
Heuristic: measured 1.9 times in a program of half a millisecond; more is a validation pass or a
page fault, not ours."""
BARE = 0.4
"""What a bare step costs of what a heard one does. Measured: 45 us and 115 us; no clock of ours
could tell, as reading it would cost as much."""
ALONE = 10.0
"""Weight of a full step after a thinned one among full steps in a row: it finds its code and its
data thrown out of the caches, and takes twice as long (measured); the first steps are none such."""
_MEMORY = 0.98
"""Decay of the means of cost and step time, each time that they are measured: the last 50."""


class _Mean:
    """Exponentially weighted mean, without bias from its start."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def push(self, value: float, weight: float = 1.0) -> None:
        self._sum = _MEMORY * self._sum + weight * value
        self._weight = _MEMORY * self._weight + weight

    @property
    def value(self) -> float:
        return self._sum / self._weight if self._weight else 0.0


class Budget:
    """Decides for each step whether taps run, and whether the dearer figures are computed."""

    def __init__(self, share: float, *, free_s: float = FREE_S) -> None:
        self.share, self.free_s = share, free_s
        self.is_on = self.is_deep = True
        self.is_bare = False
        """Whether most thinned steps are bare: hardly more than the loss is heard."""
        self.heard_every = HEARD_EVERY
        """Thinned steps to one that is not bare, then."""
        self._spent = self._spent_in_all = 0.0
        self._credit = self._allowance_now = 0.0
        self._full, self._thin, self._heard, self._rest = _Mean(), _Mean(), _Mean(), _Mean()
        self._handing, self._unwatched = _Mean(), _Mean()
        self._ordinal = self._watched = self._since = self._due = 0
        self._calm = CALM_AFTER
        self._looks = 0
        self._is_odd = self._is_alone = self._is_lent = False

    @property
    def cadence(self) -> float:
        """Steps to one full step, at the present costs; 1 where the budget suffices."""
        return max(1.0, self._extra / max(self._allowance(), 1e-12))

    @property
    def _extra(self) -> float:
        """Seconds that a full step takes beyond a thinned one.

        Half of its own time at least: where the means say less, that of thinned steps holds an
        accident, and full steps that look free would leave no thinned one to correct it.
        """
        return max(self._full.value - self._thin.value, self._full.value / 2)

    def spend(self, seconds: float) -> None:
        """Add CPU time that watching took within the current step; it is blind to other jobs."""
        self._spent += seconds

    def alarm(self) -> None:
        """An event was raised: the taps come back in force."""
        self._calm = -1

    def look(self) -> None:
        """A thinned step was odd: the next ones are watched in full, where the account allows."""
        self._is_odd = True
        if self._credit > -LOOKS * self._extra:
            self._looks = LOOKS

    def next_step(self, total: float, *, alarm: bool) -> bool:
        """Close the step's account; return whether the taps run on the next one.

        Args:
            total: seconds of the step on the training thread, watching included.
            alarm: whether the step raised an event.
        """
        own, self._spent = self._spent, 0.0
        self._spent_in_all += own
        self._ordinal += 1
        if self.is_on and self._unwatched.value:
            own = max(own, min(total - self._unwatched.value, UNSEEN * own))
        rest = max(total - own, 1e-7)
        self._rest.push(rest)
        if not self.is_on:
            self._unwatched.push(rest)
        allowance = self._allowance_now = self._allowance()
        if self.is_on:
            self._full.push(own, weight=ALONE if self._is_alone else 1.0)
        elif not self._is_odd:  # an odd one closed as a full one does: few, and not charged
            self._thin.push(own)
        paid = self._extra if self.is_on else 0.0
        if self._is_lent:
            paid = min(paid, max(self._credit + LOOKS * self._extra, 0.0))
        self._is_odd = False
        if alarm:
            self.alarm()
        self._calm += 1
        is_free = self._ordinal < FULL_STEPS or self._spent_in_all < self.free_s
        if is_free or self._calm < CALM_AFTER:
            self._credit = max(self._credit, 0.0)
            is_paid = True
        else:
            self._credit = min(self._credit + allowance - paid, 0.0)
            is_paid = self._credit >= 0.0 or self._looks > 0
        self._looks = max(0, self._looks - 1)
        return self._begin(is_paid=is_paid)

    @property
    def is_alarmed(self) -> bool:
        """Whether an event has been raised so recently that the taps are back in force."""
        return self._calm < CALM_AFTER

    def next_thinned(self) -> bool:
        """A thinned step closed; return whether the taps run on the next one."""
        self._ordinal += 1
        self._calm += 1
        self._credit = min(self._credit + self._allowance_now, 0.0)
        return self._begin(is_paid=self._credit >= 0.0 or self.is_alarmed)

    @property
    def stretch(self) -> int:
        """Steps from the next one on that are thinned in any case, if nothing comes up."""
        if self.is_alarmed:
            return 0
        until_paid = math.ceil(min(-self._credit / max(self._allowance_now, 1e-12), 1e6))
        return min(until_paid, self._due - self._ordinal)

    def skip(self, steps: int) -> None:
        """So many thinned steps closed without asking (see `stretch`)."""
        self._ordinal += steps
        self._calm += steps
        self._since += steps
        self._credit = min(self._credit + steps * self._allowance_now, 0.0)

    def handed_on(self, seconds: float, steps: int) -> None:
        """Note what it took to hand thinned steps on; each has its share of that, bare or not."""
        self._handing.push(seconds / steps, weight=steps)

    def thinned(self, own: float, total: float) -> None:
        """Note what hearing one thinned step cost, and how long such steps take now."""
        self._heard.push(own)
        always, rest = self._handing.value, self._rest.value
        limit = max(SEEN * self.share * rest - always, LEAST * rest)
        self.is_bare = self._heard.value > (limit / 3 if self.is_bare else limit)
        if self.is_bare:
            always += BARE * self._heard.value
            limit = max(SEEN * self.share * rest - always, LEAST * rest)
        seldom = 2 * self._heard.value / limit
        self.heard_every = int(min(max(seldom, HEARD_EVERY), HEARD_RARELY))
        mean = always + (own / self.heard_every if self.is_bare else own)
        self._thin.push(mean)
        rest = max(total - mean, 1e-7)
        self._rest.push(rest)
        self._unwatched.push(rest)
        self._allowance_now = self._allowance()

    def _begin(self, *, is_paid: bool) -> bool:
        """Open the next step; return whether the taps run on it."""
        self._is_lent = not is_paid and self._ordinal >= self._due
        self.is_on, self.is_deep = is_paid or self._is_lent, False
        self._since += 1
        self._is_alone = self._since > 1
        if self.is_on:
            self._watched += 1
            self._due = self._ordinal + 1 + self._ordinal // SEEN_BY_GROWTH
            is_rare = self._since >= DEEP_EVERY
            self.is_deep = self._watched < 16 or is_rare or self._watched % DEEP_EVERY == 0
            self._since = 0
        return self.is_on

    def _allowance(self) -> float:
        """Seconds per step that full steps may take beyond what thinned ones do."""
        rest, thin = self._rest.value, self._thin.value
        return max(SEEN * self.share * rest - thin, LEAST * rest)
