# SPDX-License-Identifier: LicenseRef-Proprietary
"""The contract of findings: a case in, a grade with its figures out; and the register of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case

Figure = float | int | str
DIGITS = 4
"""Digits of a grade: what differs in the last bits between machines must not show."""


@dataclass(frozen=True)
class Finding:
    """One graded fact about a run."""

    name: str
    """`<group>.<what>`, e.g. `updates.high`."""
    grade: float | None
    """How clearly it holds, 0 to 1; None: the trace cannot say. That is no evidence of absence."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """What it was graded by; the unit is in the name where it is not obvious."""
    layer: str | None = None
    """Where, as a path; None: no layer in particular."""
    onset: Onset | None = None
    """Since when; None: no step in particular."""
    says: str = ""
    """The same in words, one clause."""

    @property
    def is_available(self) -> bool:
        """Whether the trace could say."""
        return self.grade is not None

    @property
    def holds(self) -> bool:
        """Whether it is more true than not."""
        return self.grade is not None and self.grade >= 0.5


@dataclass(frozen=True)
class Graded:
    """What the function of a finding returns: a `Finding` that does not know its name yet."""

    grade: float | None
    says: str = ""
    layer: str | None = None
    onset: Onset | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)


Look = Callable[["Case"], Graded | None]


@dataclass(frozen=True)
class Entry:
    """A registered finding."""

    name: str
    meaning: str
    """One line: what grade 1 means."""
    source: str
    """Where its thresholds come from."""
    look: Look
    is_context: bool
    """Whether it says what kind of run this is, not that something is wrong."""


_ENTRIES: dict[str, Entry] = {}


def finding(
    name: str, source: str, *, meaning: str = "", is_context: bool = False
) -> Callable[[Look], Look]:
    """Register the function under it as the finding `name`.

    Args:
        name: `<group>.<what>`; unique.
        source: Where its thresholds come from: a paper, or "Heuristic: why".
        meaning: One line: what grade 1 means; by default the first line of the docstring.
        is_context: Whether it describes the run instead of a fault; such ones may be high on
            healthy runs.

    Raises:
        ValueError: The name is taken, or nothing says what it means.
    """

    def register(look: Look) -> Look:
        if name in _ENTRIES:
            raise ValueError(f"finding {name!r} is registered twice")
        says = meaning or (look.__doc__ or "").strip().partition("\n")[0]
        if not says:
            raise ValueError(f"finding {name!r} has no docstring: its first line is its meaning")
        _ENTRIES[name] = Entry(name, says, source, look, is_context)
        return look

    return register


def entries() -> Mapping[str, Entry]:
    """Return what is registered so far, in order of registration."""
    return MappingProxyType(_ENTRIES)


def graded(
    grade: float | None,
    says: str = "",
    layer: str | None = None,
    onset: Onset | None = None,
    **figures: float | str,
) -> Graded | None:
    """Return a graded fact with its figures; None where the grade is no number.

    Where and since when count only for what holds at all: at grade 0 they are left out.
    """
    if grade is None or math.isnan(grade):
        return None
    value = round(min(max(float(grade), 0.0), 1.0), DIGITS)
    kept = {
        name: figure if isinstance(figure, (str, int)) else float(figure)
        for name, figure in figures.items()
    }
    if value == 0.0:
        return Graded(0.0, figures=kept)
    return Graded(value, says, layer, onset, kept)


def yes(truth: object, says: str = "", **figures: float | str) -> Graded | None:
    """Return grade 1 or 0 for what is so or is not."""
    return Graded(1.0, says, figures=figures) if truth else Graded(0.0, figures=figures)


def ramp(value: float, zero: float, one: float) -> float:
    """Return 0 at `zero` and before, 1 at `one` and beyond, smooth between (3 x^2 - 2 x^3).

    `one` may lie below `zero`. NaN in, NaN out.

    Example:
        >>> ramp(0.5, 0, 1), ramp(3, 0, 1), ramp(0.25, 0.5, 0.0)
        (0.5, 1.0, 0.5)
    """
    if math.isnan(value):
        return math.nan
    share = min(max((value - zero) / (one - zero), 0.0), 1.0)
    return share * share * (3 - 2 * share)


def log_ramp(value: float, zero: float, one: float) -> float:
    """Return `ramp` over the logarithm: for ratios, norms and rates. Not positive counts as 0.

    Example:
        >>> log_ramp(1e-2, 1e-3, 1e-1), log_ramp(0.0, 1e-3, 1e-5)
        (0.5, 1.0)
    """
    if math.isnan(value):
        return math.nan
    if math.isinf(value):
        return ramp(math.copysign(1e9, value), math.log(zero), math.log(one))
    return ramp(math.log(max(value, 1e-300)), math.log(zero), math.log(one))


def both(*grades: float) -> float:
    """Return the grade of all of them together: the least. NaN where any is unknown.

    Example:
        >>> both(0.9, 0.4)
        0.4
    """
    return math.nan if any(math.isnan(grade) for grade in grades) else min(grades)
