# SPDX-License-Identifier: LicenseRef-Proprietary
"""The numbers behind the cards: few, shared by all causes, and fitted to recorded programs.

They stand in `calibration.json`, which `benchmarks/fit_engine.py` writes and nobody edits. With
fewer than two programs per cause, no number can belong to one cause: what is fitted is what a
strength is worth, how often findings hold without any of their causes, and how far a probability
that the model gives can be believed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from neuraldbg_engine.causes import Strength

VERSION = 1
"""Of the data file's layout."""
TINY = 1e-6


@dataclass(frozen=True)
class Calibration:
    """Parameters of the model. The defaults are the prior guess that fitting starts from."""

    seen: Mapping[Strength, float] = field(
        default_factory=lambda: {
            Strength.DECISIVE: 0.7,
            Strength.STRONG: 0.4,
            Strength.MODERATE: 0.15,
            Strength.WEAK: 0.05,
        }
    )
    """Probability that a cause produces a finding of this strength."""
    denied: Mapping[Strength, float] = field(
        default_factory=lambda: {
            Strength.DECISIVE: 0.95,
            Strength.STRONG: 0.8,
            Strength.MODERATE: 0.5,
            Strength.WEAK: 0.2,
        }
    )
    """Share of a cause's probability that a finding takes when it speaks against the cause."""
    leak: float = 0.02
    """Probability that a finding holds with none of its causes, where it was never counted."""
    leaks_quiet: Mapping[str, float] = field(default_factory=dict)
    """The same by finding, in runs without a fault: counted, and drawn towards `leak`."""
    leaks_faulty: Mapping[str, float] = field(default_factory=dict)
    """The same in runs with another fault."""
    opinion_seen: float = 0.85
    """Probability that core's specialist speaks up where its cause is at work."""
    opinion_ratio: tuple[float, float] = (1.5, 5.0)
    """Log of how much likelier a specialist is to speak with confidence g if it is right than in
    a run with another fault: first + second * g."""
    opinion_direct: float = 1.0
    """What is added to that log where the specialist saw the fault itself."""
    opinion_quiet: float = 4.0
    """What is added to that log in a run without a fault: specialists keep quiet there."""
    opinion_explained: float = 0.5
    """Probability that a specialist speaks up where another cause at work explains its evidence."""
    first_right: float = 0.9
    """Probability that the cause which core's own ranking puts first is at work."""
    none: float = 0.5
    """Prior probability of a run without a fault."""
    unknown: float = 0.02
    """Prior probability of a fault that is on no card."""
    pair: float = 0.02
    """Prior probability of two causes at once."""
    more: float = 3.0
    """By how much a context makes a cause more (or less) to be expected."""
    trust: tuple[float, float] = (0.0, 1.0)
    """Confidence = logistic(first + second * logit(probability of the model)); second > 0."""
    made_from: str = "the prior guess, fitted to nothing"
    """Which programs, in words."""

    def quiet_leak(self, finding: str) -> float:
        """Return how often a finding holds in a run without a fault."""
        return self.leaks_quiet.get(finding, self.leak)

    def faulty_leak(self, finding: str) -> float:
        """Return how often a finding holds in a run whose fault does not produce it."""
        return self.leaks_faulty.get(finding, self.leak)

    def confidence(self, probability: float) -> float:
        """Return how sure the engine may be, given the probability that the model gives.

        Monotone: the order of causes is the model's.

        Example:
            >>> Calibration().confidence(0.25)
            0.25
        """
        p = min(max(probability, TINY), 1 - TINY)
        first, second = self.trust
        value = 1 / (1 + math.exp(-(first + second * math.log(p / (1 - p)))))
        return round(value, 4)

    def as_dict(self) -> dict[str, Any]:
        """Return what the data file holds."""
        return {"version": VERSION, **asdict(self)}


def from_dict(data: Mapping[str, Any]) -> Calibration:
    """Return the calibration in a data file.

    Raises:
        ValueError: The file is of another version of the layout.
    """
    fields = dict(data)
    version = fields.pop("version", None)
    if version != VERSION:
        raise ValueError(f"calibration of layout {version!r}; this engine reads {VERSION}")
    for name in ("seen", "denied"):
        fields[name] = {Strength(key): float(value) for key, value in fields[name].items()}
    for name in ("opinion_ratio", "trust"):
        fields[name] = tuple(fields[name])
    return Calibration(**fields)


@cache
def shipped() -> Calibration:
    """Return the calibration that this release was shipped with."""
    text = files(__package__).joinpath("calibration.json").read_text(encoding="utf-8")
    return from_dict(json.loads(text))
