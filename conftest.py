"""Examples in README, docs and docstrings are tests: executed, in the order of the page."""

from __future__ import annotations

import os
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from sybil import Sybil
from sybil.document import PythonDocStringDocument
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser as FencedParser
from sybil.parsers.markdown import SkipParser as MarkdownSkipParser
from sybil.parsers.myst import DocTestDirectiveParser
from sybil.parsers.myst import PythonCodeBlockParser as MystParser
from sybil.parsers.myst import SkipParser as MystSkipParser
from sybil.parsers.rest import DocTestParser
from sybil.sybil import SybilCollection

if TYPE_CHECKING:
    from collections.abc import Generator

pytest_plugins = ["pytester"]

OPTIONS = ELLIPSIS | NORMALIZE_WHITESPACE

pytest_collect_file = SybilCollection(
    [
        Sybil(
            parsers=[FencedParser(doctest_optionflags=OPTIONS), MarkdownSkipParser()],
            patterns=["README.md"],
        ),
        Sybil(
            parsers=[
                DocTestDirectiveParser(optionflags=OPTIONS),
                MystParser(doctest_optionflags=OPTIONS),
                MystSkipParser(),
            ],
            patterns=[f"docs/{depth}*.md" for depth in ("", "*/", "*/*/")],
        ),
        Sybil(
            parsers=[DocTestParser(optionflags=OPTIONS)],
            patterns=[f"packages/*/src/{'*/' * depth}*.py" for depth in range(1, 5)],
            document_types={".py": PythonDocStringDocument},
        ),
    ]
).pytest()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let examples show what core alone answers, whatever else is installed here."""
    if not isinstance(item, SybilItem):
        return (yield)
    with mock.patch.dict(os.environ, NEURALDBG_DISABLE_PLUGINS="engine"):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the examples back in page order: an example builds on those above it."""
    examples = [item for item in items if isinstance(item, SybilItem)]
    examples.sort(key=lambda item: (item.path, item.example.line, item.example.column))
    tests = [item for item in items if not isinstance(item, SybilItem)]
    items[:] = examples + tests
