"""What the tests of trainers share: other people's warnings and variables are theirs."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path

import pytest

LIBRARIES = ("lightning", "transformers", "accelerate", "ignite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Trainers warn of their own affairs, and take a while to be imported."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(scope="session", autouse=True)
def _imported() -> None:
    """Let the libraries that are there set their variables before the guards look."""
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
