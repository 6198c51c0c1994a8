# SPDX-License-Identifier: MIT
"""The vocabulary of diagnosis: failure types, and the root causes behind them.

Read from `causes.toml` on first use. Ids are public API: never renamed, never reused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field

from neuraldbg.errors import UnknownNameError, UsageError

UNKNOWN = "unknown"
"""The cause of a failure that no cause of the vocabulary explains. Not a member of it."""


SPELLINGS = {"nan": "NaN", "inf": "Inf", "relu": "ReLU", "rms": "RMS"}


class Cause(BaseModel):
    """Why a training run failed, with what gives it away and what to do.

    Example:
        >>> cause("dying_relu").remedy
        'LeakyReLU or GELU, smaller bias, normalisation'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    failures: tuple[str, ...] = Field(min_length=1)
    """Failure types under which the cause is usually seen, the most typical first."""
    signs: str = Field(min_length=1)
    """The evidence that gives it away."""
    spares: str = ""
    """The evidence that speaks against it."""
    confirm: str = ""
    """The intervention that would prove it; empty: no replay of recorded steps can."""
    remedy: str = Field(min_length=1)
    """What to tell the user."""


@dataclass(frozen=True)
class Vocabulary:
    """Failure types with their sentences, and causes by id; immutable."""

    failure_types: Mapping[str, str]
    causes: Mapping[str, Cause]

    def cause(self, name: str) -> Cause:
        """Return the cause with this id.

        Raises:
            UnknownNameError: There is none; the message has the nearest ids.
        """
        try:
            return self.causes[name]
        except KeyError:
            raise unknown_name("cause", name, self.causes) from None

    def failure(self, name: str) -> str:
        """Return the sentence that says what the failure type means.

        Raises:
            UnknownNameError: There is none; the message has the nearest names.
        """
        try:
            return self.failure_types[name]
        except KeyError:
            raise unknown_name("failure type", name, self.failure_types) from None

    def causes_of(self, failure: str) -> tuple[Cause, ...]:
        """Return the causes usually seen under this failure type, in the vocabulary's order.

        Raises:
            UnknownNameError: The failure type does not exist.
        """
        self.failure(failure)
        return tuple(each for each in self.causes.values() if failure in each.failures)

    def extended(self, more: Iterable[Cause]) -> Vocabulary:
        """Return this vocabulary with a plugin's causes added; this one stays as it is.

        Raises:
            UsageError: An id is taken (ids are never redefined).
            UnknownNameError: A cause names a failure type that does not exist.
        """
        causes = dict(self.causes)
        for each in more:
            if each.id in causes or each.id == UNKNOWN:
                raise UsageError(
                    f"cause {each.id!r} exists already, and ids are never redefined: "
                    "choose another id"
                )
            for failure in each.failures:
                self.failure(failure)
            causes[each.id] = each
        return Vocabulary(self.failure_types, MappingProxyType(causes))


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """Return the error for a name that does not exist, with the nearest ones that do.

    Args:
        kind: What was looked for, in words, such as `cause`.
        name: What the caller gave.
        known: Every name that would have done.

    Example:
        >>> str(unknown_name("cause", "dying_relo", ["dying_relu", "lr_too_high"]))
        "unknown cause 'dying_relo'; did you mean 'dying_relu'?"
    """
    names = list(dict.fromkeys(map(str, known)))
    near = get_close_matches(str(name).lower(), names, n=3, cutoff=0.5)
    if near:
        advice = f"did you mean {' or '.join(map(repr, near))}?"
    elif names:
        shown = ", ".join(names[:10])
        advice = f"known are {shown}{', ...' if len(names) > len(names[:10]) else ''}"
    else:
        advice = "none is known here"
    return UnknownNameError(f"unknown {kind} {str(name)!r}; {advice}")


@cache
def vocabulary() -> Vocabulary:
    """Return the built-in vocabulary, read from the package on the first call.

    Example:
        >>> vocabulary().failure("dead_neurons")
        'units that give zero output and get zero gradient'
    """
    text = files("neuraldbg").joinpath("causes.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    bare = Vocabulary(MappingProxyType(data["failure_types"]), MappingProxyType({}))
    return bare.extended(Cause(id=name, **fields) for name, fields in data["causes"].items())


def cause(name: str) -> Cause:
    """Return the built-in cause with this id.

    Raises:
        UnknownNameError: There is none; the message has the nearest ids.
    """
    return vocabulary().cause(name)


def words(name: str) -> str:
    """Return an id as words for people.

    Example:
        >>> words("nan_in_input")
        'NaN in input'
    """
    return " ".join(SPELLINGS.get(word, word) for word in name.split("_"))
