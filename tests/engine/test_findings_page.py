# SPDX-License-Identifier: MIT
"""The page of findings shows what is registered: no finding is missing, none is made up."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from neuraldbg_engine.findings import registered

DOCS = Path(__file__).parents[2] / "docs"
_spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)


def test_page_of_findings_is_what_the_generator_writes():
    page = (DOCS / "reference" / "findings.md").read_text(encoding="utf-8")
    assert page.endswith(generate.findings_tables()), "run `python docs/generate.py`"


def test_every_finding_but_the_specialists_is_on_the_page():
    text = generate.findings_tables()
    names = [name for name in registered() if not name.startswith("specialist.")]
    assert not [name for name in names if f"`{name}`" not in text]
