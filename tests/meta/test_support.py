# SPDX-License-Identifier: MIT
"""The table of set-ups says what the tests of the matrix are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_page_of_set_ups_is_made_from_the_tests_as_they_are():
    command = [sys.executable, ROOT / "docs/support.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_every_cell_is_tested_or_has_its_reason():
    page = (ROOT / "docs/support.md").read_text(encoding="utf-8")
    reasons: set[str] = set()
    for section in page.split("\n## ")[1:]:
        rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| ")]
        reasons = {line.split(".")[0] for line in section.splitlines() if line[:1].isdigit()}
        for row in rows[1:]:
            for cell in row[1:]:
                assert cell.strip() in {"✓", *reasons}, row
        if rows:
            used = {cell.strip() for row in rows[1:] for cell in row[1:]} - {"✓"}
            assert used == reasons
