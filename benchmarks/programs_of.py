# SPDX-License-Identifier: MIT
"""The zoo's programs by name, and the architecture of each."""

from __future__ import annotations

import ast
import functools
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "zoo"))

from pairs import FOLDERS, HELD_OUT, expand, load  # noqa: E402

__all__ = ["architecture", "expand", "load", "part", "text_of"]


@functools.cache
def _table() -> dict[str, str]:
    text = (HERE / "zoo" / "architectures.toml").read_text(encoding="utf-8")
    return {name: kind for kind, names in tomllib.loads(text).items() for name in names}


def architecture(name: str) -> str:
    """Return a program's architecture: its file's ARCHITECTURE, or the table's; `other` without."""
    declared = _constant(name, "ARCHITECTURE")
    return str(declared) if declared else _table().get(_path(name).stem, "other")


def _path(name: str) -> Path:
    path = Path(name.partition("::")[0].rpartition("@")[2])
    places = [path, *(folder / path.name for folder in FOLDERS)]
    return next((one for one in places if one.is_file()), path)


def part(name: str) -> str:
    """Return `held out` for a program of that folder, by its stem, and `tuned` for all others."""
    return "held out" if (HELD_OUT / f"{name}.py").is_file() else "tuned"


def _constant(name: str, wanted: str) -> Any:
    path = _path(name)
    if not path.is_file():
        return None
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == wanted for target in node.targets
        ):
            return ast.literal_eval(node.value)
    return None


def text_of(name: str) -> str:
    """Return a program's docstring: what the user does and what they see."""
    return ast.get_docstring(ast.parse(_path(name).read_text(encoding="utf-8"))) or ""
