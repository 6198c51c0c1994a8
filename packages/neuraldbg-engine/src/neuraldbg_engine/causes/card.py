# SPDX-License-Identifier: LicenseRef-Proprietary
"""The contract of causes: a card says which findings speak for a cause, which against, how clearly.

A card is data. It holds what core's vocabulary says of the cause, and:

- `for`: names of findings by strength. `!name` stands for the opposite of a finding.
- `against`: the same, for findings that are hardly ever seen together with the cause.
- `where`: context findings that make the cause more or less to be expected (`more`, `less`).
- `explains`: causes whose evidence this one would produce by itself.

No number stands on a card: what a strength is worth is one shared parameter (`calibration.py`),
fitted for all causes together.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import ConfigDict, Field, field_validator

from neuraldbg.causes import Cause

OPPOSITE = "!"
"""Before the name of a finding: it counts where the finding does not hold."""


class Strength(StrEnum):
    """How clearly a finding speaks, from the fault itself to a hint."""

    DECISIVE = "decisive"
    """The fault itself, or what hardly anything else produces."""
    STRONG = "strong"
    """Usual under this cause, rare under others."""
    MODERATE = "moderate"
    """Usual under this cause, and under some others."""
    WEAK = "weak"
    """Fits, and fits much else."""


class Card(Cause):
    """A cause with the findings that speak for and against it.

    Example:
        >>> card = Card.model_validate({
        ...     "id": "too_hot", "failures": ["optimizer_instability"], "signs": "heat",
        ...     "remedy": "cool it", "for": {"strong": ["loss.diverged"]},
        ... })
        >>> card.speaks_for
        {<Strength.STRONG: 'strong'>: ('loss.diverged',)}
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True)

    speaks_for: dict[Strength, tuple[str, ...]] = Field(default_factory=dict, alias="for")
    speaks_against: dict[Strength, tuple[str, ...]] = Field(default_factory=dict, alias="against")
    where: dict[str, str] = Field(default_factory=dict)
    explains: tuple[str, ...] = ()

    @field_validator("where")
    @classmethod
    def _more_or_less(cls, where: dict[str, str]) -> dict[str, str]:
        if wrong := sorted(set(where.values()) - {"more", "less"}):
            raise ValueError(f"`where` says 'more' or 'less', not {wrong[0]!r}")
        return where

    @property
    def findings(self) -> tuple[str, ...]:
        """Names of all findings that the card rests on, without repeats."""
        listed = (*self.speaks_for.values(), *self.speaks_against.values(), tuple(self.where))
        return tuple(dict.fromkeys(n.removeprefix(OPPOSITE) for names in listed for n in names))
