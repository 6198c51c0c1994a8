# SPDX-License-Identifier: MIT
"""Whether a distribution says that it works with this version of `neuraldbg`.

pip checks this when it installs, not when `neuraldbg` alone is upgraded afterwards.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Release = tuple[int, ...]

COMPARISONS: dict[str, Callable[[Release, Release], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
REQUIREMENT = re.compile(
    r"^\s*neuraldbg\s*(\[[^]]*\])?\s*\(?(?P<versions>[^;()]*)\)?\s*(;|$)", re.IGNORECASE
)
CLAUSE = re.compile(r"^\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)\s*$")


def release(version: str) -> Release:
    """Return the leading numbers of a version, at least three: `2.1rc1` becomes (2, 1, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = tuple(int(part) for part in match.group().split(".")) if match else ()
    return numbers + (0,) * (3 - len(numbers))


def unmet(requirements: Iterable[str], version: str) -> str | None:
    """Return the first requirement on `neuraldbg` that `version` does not meet, or None.

    Plain comparisons are checked; a clause of another shape (`~=`, `==2.*`) counts as met.

    Example:
        >>> unmet(["torch", "neuraldbg<1.9,>=1.8"], "2.0.0")
        'neuraldbg<1.9,>=1.8'
    """
    for requirement in requirements:
        match = REQUIREMENT.match(requirement)
        for clause in match["versions"].split(",") if match else ():
            parts = CLAUSE.match(clause)
            if parts and not COMPARISONS[parts[1]](release(version), release(parts[2])):
                return requirement
    return None
