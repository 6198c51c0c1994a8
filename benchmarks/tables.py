# SPDX-License-Identifier: MIT
"""Markdown tables and the few ways in which a figure is written on the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


NONE = "-"
"""Stands where nothing was counted."""


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; cells are written as `str` writes them."""
    lines = [_line(head), "|" + "---|" * len(head)]
    return "\n".join(lines + [_line(row) for row in rows]) + "\n"


def _line(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def share(right: int, of: int) -> str:
    """Return `right/of (percent)`, a dash where nothing was counted."""
    return f"{right}/{of} ({100 * right / of:.0f} %)" if of else NONE


def paragraphs(*parts: str) -> str:
    """Join parts by blank lines, empty ones left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def quantile(values: list[float], q: float) -> float:
    """Return the `q` quantile, 0 to 1, by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(q * (len(ordered) - 1)))]
