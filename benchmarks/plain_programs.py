# SPDX-License-Identifier: MIT
"""Programs of one fault each, by their files: what `zoo/pairs.py` does for all kinds of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace


def load(name: str) -> SimpleNamespace:
    """Return a program's truth and calls from its file."""
    spec = importlib.util.spec_from_file_location(f"zoo_{Path(name).stem}", name)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {name!r}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stem = Path(name).stem
    return SimpleNamespace(name=stem, family=stem, TRUTH=module.TRUTH, train=module.train, skip="")


def expand(paths: list[str]) -> list[str]:
    """Return the programs' files under files and folders, the zoo's where none is given."""
    names: list[str] = []
    for path in map(Path, paths or [str(Path(__file__).parent / "zoo" / "programs")]):
        names += [str(p) for p in sorted(path.glob("[a-z]*.py"))] if path.is_dir() else [str(path)]
    return [name for name in names if Path(name).name != "harness.py"]
