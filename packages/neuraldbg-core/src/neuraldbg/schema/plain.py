# SPDX-License-Identifier: MIT
"""Columns as plain numbers, for code that runs on every step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from neuraldbg.schema.facts import GradState, ParameterStat

if TYPE_CHECKING:
    from enum import IntEnum


def plain(columns: type[IntEnum]) -> SimpleNamespace:
    """Return the members of an enum as attributes that are nothing but numbers.

    numpy asks the class of an index for attributes, which before Python 3.12 runs code of `enum`,
    and drops whatever is raised there: the exception of a signal, too, such as Ctrl-C.
    """
    return SimpleNamespace(**{member.name: int(member) for member in columns})


PARAMETER, GRADIENT = plain(ParameterStat), plain(GradState)
"""`ParameterStat` and `GradState`."""
