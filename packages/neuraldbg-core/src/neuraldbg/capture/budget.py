# SPDX-License-Identifier: MIT
"""The overhead budget: how often the taps run, from measured cost against measured step time."""

from __future__ import annotations

FULL_STEPS = 64
"""First steps that are always watched in full. Heuristic: faults of initialisation, wiring and
objective show there, and the cost estimate needs them."""
FREE_STEPS, FREE_S = 256, 1.0
"""Up to so many steps go on in full while watching has cost less than this many seconds in all.
Heuristic: nobody minds a second, and in a fast program it buys the whole first phase."""
DEEP_EVERY = 4
"""Sampled shares, ranks and second moments every so many watched steps after the first 16."""
CALM_AFTER = 32
"""Steps after the last alarm until thinning resumes."""
SEEN = 0.7
"""Share of the cost that the account sees. Measured: reading activations also displaces the
caches of the training itself, which no clock of ours can tell apart."""
_CADENCES = (1, 2, 4, 8, 16, 32)


class Budget:
    """Decides for each step whether taps run, and whether the dearer figures are computed."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.cadence = 1
        self.is_deep = True
        self._spent = self._spent_in_all = 0.0
        self._cost = self._light = self._total = 0.0
        self._ordinal = 0
        self._calm = CALM_AFTER
        self._watched = 0
        self._is_on = True

    def spend(self, seconds: float) -> None:
        """Add CPU time that watching took within the current step; it is blind to other jobs."""
        self._spent += seconds
        self._spent_in_all += seconds

    def next_step(self, total: float, *, alarm: bool) -> bool:
        """Close the step's account; return whether the taps run on the next one.

        Args:
            total: wall seconds of the step, watching included.
            alarm: whether the step raised an event; taps come back in force.
        """
        own = self._spent
        self._spent = 0.0
        self._ordinal += 1
        rest = max(total - own, 1e-7)
        self._total = _ema(self._total, rest)
        if self._is_on:
            self._cost = _ema(self._cost, own)
        else:
            self._light = _ema(self._light, own)
        self._calm = 0 if alarm else self._calm + 1
        is_free = self._ordinal < FREE_STEPS and self._spent_in_all < FREE_S
        if self._ordinal < FULL_STEPS or is_free or self._calm < CALM_AFTER:
            self.cadence = 1
        else:
            self.cadence = self._choose()
        self._is_on = self._ordinal % self.cadence == 0
        self._watched += self._is_on
        self.is_deep = self._is_on and (self._watched < 16 or self._watched % DEEP_EVERY == 0)
        return self._is_on

    def _choose(self) -> int:
        allowance = SEEN * self.share * self._total
        light = min(self._light or self._cost / 4, self._cost)
        for cadence in _CADENCES:
            if light + (self._cost - light) / cadence <= allowance:
                return cadence
        return _CADENCES[-1]


def _ema(old: float, new: float) -> float:
    return new if old == 0.0 else 0.9 * old + 0.1 * min(new, 10 * old)
