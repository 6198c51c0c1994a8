# SPDX-License-Identifier: MIT
"""Write support.md from the names of the tests in tests/matrix: `python docs/support.py`.

A test that takes `setup` and `fault` is a cell, one that takes `setup` alone the cell of the
healthy run, and any other a sentence below the table. A skipped cell gives its reason.
"""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parent / "support.md"
TESTS = Path(__file__).parents[1] / "tests/matrix"
HEALTHY = "healthy"
TESTED = "✓"

HEAD = """\
# Supported set-ups

<!-- Written by docs/support.py from the tests in tests/matrix: change those, not this page. -->

Every cell is a test of the suite; this page is made from the tests' own names.

**Healthy** is a run that learns.
Its weights are bit-equal to those of the run that nobody watches.
Nothing is accused, and no hook is left on the model afterwards.

**A fault** is put into each set-up by the same operation.
It must be told with its failure type, its layer and its step.
A number in place of a mark says why that cell is none.
"""


@dataclass
class Section:
    """What one module of tests has collected."""

    title: str
    cells: dict[str, dict[str, str]] = field(default_factory=dict)
    """Row -> column -> mark."""
    reasons: list[str] = field(default_factory=list)
    sentences: dict[str, None] = field(default_factory=dict)

    def add(self, item: pytest.Function) -> str | None:
        """Take one test; return its column where it is a cell."""
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if "setup" not in params:
            name = item.originalname.removeprefix("test_").replace("_", " ")
            self.sentences[f"{name[:1].upper()}{name[1:]}."] = None
            return None
        row, column = title_of(params["setup"]), title_of(params.get("fault", HEALTHY))
        self.cells.setdefault(row, {})[column] = self._mark(item)
        return column

    def _mark(self, item: pytest.Function) -> str:
        skipped = item.get_closest_marker("skip")
        if skipped is None:
            return TESTED
        reason = str(skipped.kwargs["reason"])
        if reason not in self.reasons:
            self.reasons.append(reason)
        return str(self.reasons.index(reason) + 1)

    def lines(self, columns: list[str]) -> list[str]:
        """Return the section as Markdown."""
        lines = ["", f"## {self.title}", ""]
        if self.cells:
            lines += [f"| set-up | {' | '.join(columns)} |", "|---|" + ":-:|" * len(columns)]
            for row, marks in self.cells.items():
                lines.append(f"| {row} | {' | '.join(marks.get(c, '') for c in columns)} |")
            lines += [""] * bool(self.reasons)
            lines += [f"{n}. {reason}." for n, reason in enumerate(self.reasons, 1)]
        if self.sentences:
            lines += ["", "Also tested:", ""] if self.cells else ["Tested:", ""]
            lines += [*(f"- {each}" for each in self.sentences)]
        return lines


def title_of(subject: Any) -> str:
    """Return what a set-up or fault is called in the table."""
    return subject if isinstance(subject, str) else str(subject.title)


class Collector:
    """A plugin of pytest that keeps what it collects."""

    items: list[pytest.Item]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Called once, when all tests are known."""
        self.items = session.items


def collect() -> list[pytest.Function]:
    """Return the tests of the matrix, in the order of files and lines."""
    collector, output = Collector(), io.StringIO()
    options = [
        "--collect-only",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    with contextlib.redirect_stdout(output):
        status = pytest.main([*options, str(TESTS)], plugins=[collector])
    if status is not pytest.ExitCode.OK:
        raise SystemExit(output.getvalue())
    return [item for item in collector.items if isinstance(item, pytest.Function)]


def page() -> str:
    """Return the page as the tests are now."""
    sections: dict[str, Section] = {}
    columns = {HEALTHY: None}
    for item in collect():
        title = str(item.module.__doc__).splitlines()[0].rstrip(".")
        column = sections.setdefault(title, Section(title)).add(item)
        columns |= {} if column is None else {column: None}
    lines = [line for section in sections.values() for line in section.lines(list(columns))]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    fresh = page()
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == fresh else "run docs/support.py again")
    PAGE.write_text(fresh, encoding="utf-8")
